"""How fast records may be handed out: so many records or bytes a second, and each key only so
often.

A :class:`RateLimiter` cuts what was read into parts and says how long to wait before each; the
caller waits, so that the end of a term interrupts it. When a record must wait, all records after it
wait too.

* **Records and bytes** are two token buckets. A bucket holds one second's worth, at least one
  record. A record larger than that passes alone, out of a full bucket, and later ones wait for it.
* **Keys**: a record whose key was handed out less than ``key_interval_s`` ago waits until it was
  that long ago. Records without a key are free. The key alone counts, whatever its topic.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from leaderq.base import clock
from leaderq.kafka.record import Record

BURST_S = 1.0
QUANTUM_S = 0.1
"""A wait for tokens is for so many seconds' worth, so that records are not handed out singly."""


class RateLimiter:
    """Cuts records into parts that keep the limits; ``None``: no limit of that kind. Not
    thread-safe: one batch at a time. ``now()`` returns the time in seconds.

    *Guarantees:* in any window of ``w`` seconds at most ``records_per_s * w + max(1,
    records_per_s)`` records, and at most ``bytes_per_s * w + max(bytes_per_s, size of the largest
    record)`` bytes are handed out; two records of one key at least ``key_interval_s`` apart; every
    record once, in the order given.
    *Not guaranteed:* anything across processes: a new leader starts from zero. Each key that was
    handed out within the last ``key_interval_s`` seconds takes about 150 bytes of memory.
    """

    def __init__(
        self,
        records_per_s: float | None = None,
        bytes_per_s: float | None = None,
        key_interval_s: float | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        self._now = now = clock.now_s if now is None else now
        self._limits: list[_Bucket | _Keys] = []
        if records_per_s is not None:
            self._limits.append(_Bucket(records_per_s, lambda _: 1, now()))
        if bytes_per_s is not None:
            self._limits.append(_Bucket(bytes_per_s, lambda record: record.size, now()))
        if key_interval_s is not None:
            self._limits.append(_Keys(key_interval_s))
        self._pending: Sequence[Record] = ()

    def parts(self, records: Sequence[Record]) -> Iterator[tuple[float, Sequence[Record]]]:
        """Yield pairs: how many seconds to wait, and the records to hand out after that; together
        these are all ``records``. Wait, call :meth:`handed_out`, work on the part, then take the
        next pair.
        """
        at = 0
        while at < len(records):
            wait_s, end = self._next(records, at)
            part = records if end - at == len(records) else records[at:end]
            self._pending = part
            yield wait_s, part
            self.handed_out()
            at = end
        self._pending = ()

    def handed_out(self) -> None:
        """Note that the last part is handed out now; the limits count from this moment."""
        part, self._pending = self._pending, ()
        now = self._now()
        for limit in self._limits if part else ():
            limit.take(part, now)

    def _next(self, records: Sequence[Record], at: int) -> tuple[float, int]:
        """Return how many seconds to wait, and where the part that begins at ``at`` ends."""
        now, end = self._now(), len(records)
        wait_s = max((limit.wait_s(records, at, now) for limit in self._limits), default=0.0)
        for limit in self._limits:
            end = limit.end(records, at, end, now + wait_s)
        return wait_s, end


_DUST = 1e-6  # of a token: what adding up fractions of seconds may lose


class _Bucket:
    """A token bucket: ``rate`` tokens come each second, up to one second's worth. Its level may be
    negative.
    """

    def __init__(self, rate: float, weigh: Callable[[Record], int], now: float) -> None:
        self._rate, self._weigh = rate, weigh
        self._size = self._tokens = max(1.0, rate * BURST_S)
        self._quantum = max(1.0, rate * QUANTUM_S)
        self._at = now

    def _level(self, then: float) -> float:
        return min(self._size, self._tokens + self._rate * max(0.0, then - self._at))

    def wait_s(self, records: Sequence[Record], at: int, now: float) -> float:
        """Return the seconds until the record at ``at`` may be taken; if it must wait, it waits
        until a quantum may be taken.
        """
        level, least = self._level(now), self._weigh(records[at])
        if level + _DUST >= min(least, self._size):
            return 0.0
        wanted = 0.0
        for position in range(at, len(records)):
            wanted += self._weigh(records[position])
            if wanted >= self._quantum:
                break
        return (min(self._size, max(least, min(wanted, self._quantum))) - level) / self._rate

    def end(self, records: Sequence[Record], at: int, end: int, then: float) -> int:
        """Return where the part that begins at ``at`` must end; it has one record at least."""
        left = self._level(then) - self._weigh(records[at])
        for position in range(at + 1, end):
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

    def wait_s(self, records: Sequence[Record], at: int, now: float) -> float:
        key = records[at].key
        return 0.0 if key is None else max(0.0, self._due(key) - now)

    def end(self, records: Sequence[Record], at: int, end: int, then: float) -> int:
        """Return where the part that begins at ``at`` must end: in front of the first record that
        may not be handed out yet.
        """
        seen = set()
        for position in range(at, end):
            key = records[position].key
            if key is None:
                continue
            if _mark(key) in seen or (position > at and self._due(key) > then):
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
