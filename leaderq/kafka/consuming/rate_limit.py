"""How fast records may be handed out: so many records or bytes a second, and each key only so
often (pure).

When a record must wait, all records after it wait too.

* **Records and bytes** are two token buckets. A bucket holds one second's worth, at least one
  record. A record larger than that passes alone, out of a full bucket, and later ones wait for it.
* **Keys**: a record whose key was handed out less than ``key_interval_s`` ago waits until it was
  that long ago. Records without a key are free. The key alone counts, as it was read, whatever its
  topic.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from leaderq.kafka.record import Record

QUANTUM_S = 0.1
"""A wait for tokens is for so many seconds' worth, so that records are not handed out singly."""


class RateLimiter:
    """Says how long records wait, and how many may go then; ``None``: no limit of that kind. Not
    thread-safe. Times are seconds of one clock.

    *Guarantees:* in any window of ``w`` seconds at most ``records_per_s * w + max(1,
    records_per_s)`` records, and at most ``bytes_per_s * w + max(bytes_per_s, size of the largest
    record)`` bytes are handed out; two records of one key at least ``key_interval_s`` apart.
    *Not guaranteed:* anything across processes: a new leader starts from zero. Each key that was
    handed out within the last ``key_interval_s`` seconds takes about 150 bytes of memory.
    """

    def __init__(
        self,
        records_per_s: float | None = None,
        bytes_per_s: float | None = None,
        key_interval_s: float | None = None,
    ) -> None:
        self._limits: list[_Bucket | _Keys] = []
        if records_per_s is not None:
            self._limits.append(_Bucket(records_per_s, lambda _: 1))
        if bytes_per_s is not None:
            self._limits.append(_Bucket(bytes_per_s, lambda record: record.size))
        if key_interval_s is not None:
            self._limits.append(_Keys(key_interval_s))

    def wait_s(self, records: Sequence[Record], now_s: float) -> float:
        """Return the seconds until the first of ``records`` may go."""
        return max((limit.wait_s(records, now_s) for limit in self._limits), default=0.0)

    def take(self, records: Sequence[Record], now_s: float) -> Sequence[Record]:
        """Return those of ``records`` that go now, the first ones; it is one at least, because the
        wait is over. The limits count from now.
        """
        end = len(records)
        for limit in self._limits:
            end = limit.end(records, end, now_s)
        part = records if end == len(records) else records[:end]
        for limit in self._limits:
            limit.take(part, now_s)
        return part


_DUST = 1e-6  # of a token: what adding up fractions of seconds may lose


class _Bucket:
    """A token bucket: ``rate`` tokens come each second, up to one second's worth. Its level may be
    negative.
    """

    def __init__(self, rate: float, weigh: Callable[[Record], int]) -> None:
        self._rate, self._weigh = rate, weigh
        self._size = self._tokens = max(1.0, rate)
        self._quantum = max(1.0, rate * QUANTUM_S)
        self._at = -math.inf

    def _level(self, then: float) -> float:
        return min(self._size, self._tokens + self._rate * max(0.0, then - self._at))

    def wait_s(self, records: Sequence[Record], now: float) -> float:
        """Return the seconds until the first record may be taken; if it must wait, it waits until a
        quantum may be taken.
        """
        level, least = self._level(now), self._weigh(records[0])
        if level + _DUST >= min(least, self._size):
            return 0.0
        wanted = 0.0
        for record in records:
            wanted += self._weigh(record)
            if wanted >= self._quantum:
                break
        return (min(self._size, max(least, min(wanted, self._quantum))) - level) / self._rate

    def end(self, records: Sequence[Record], end: int, now: float) -> int:
        """Return where what goes now must end; it has one record at least."""
        left = self._level(now) - self._weigh(records[0])
        for position in range(1, end):
            left -= self._weigh(records[position])
            if left < -_DUST:
                return position
        return end

    def take(self, part: Sequence[Record], now: float) -> None:
        """Remove the tokens that ``part`` weighs, even if there are not as many."""
        self._tokens = self._level(now) - sum(map(self._weigh, part))
        self._at = max(self._at, now)


class _Keys:
    """Remembers when each key was handed out last, by its hash. Keys with the same hash make each
    other wait.
    """

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._last: OrderedDict[int, float] = OrderedDict()

    def _due(self, key: Any) -> float:
        return self._last.get(_mark(key), -math.inf) + self._interval_s

    def wait_s(self, records: Sequence[Record], now: float) -> float:
        return max(0.0, self._due(records[0].key) - now)

    def end(self, records: Sequence[Record], end: int, now: float) -> int:
        """Return where what goes now must end: in front of the first record that may not be handed
        out yet.
        """
        seen = set()
        for position in range(end):
            key = records[position].key
            if key is None:
                continue
            if _mark(key) in seen or (position > 0 and self._due(key) > now):
                return position
            seen.add(_mark(key))
        return end

    def take(self, part: Sequence[Record], now: float) -> None:
        """Note that ``part`` is handed out at ``now``; forget times older than the interval."""
        last = self._last
        for record in part:
            if record.key is not None:
                mark = _mark(record.key)
                last[mark] = now
                last.move_to_end(mark)
        while last and next(iter(last.values())) + self._interval_s <= now:
            last.popitem(last=False)


def _mark(key: Any) -> int:
    try:
        return hash(key)
    except TypeError:  # what a deserialiser made of it
        return hash(repr(key))
