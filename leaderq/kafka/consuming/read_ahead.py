"""Reading ahead: keeps records that were read and not yet handed out, and cuts batches from them
(pure).

One batch, since a second one would buy nothing: one thread at a time runs in Python. (Two where the
next batch does not wait for a commit.) What is ahead is dropped without loss whenever positions are
set again. With workers more is read ahead, because records come in long runs of one partition, and
a batch takes as much of each.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from leaderq.kafka.consuming.rate_limit import RateLimiter
from leaderq.kafka.record import Batch, Chained, Partition, Record, grouped, size_of

SPREAD_RECORDS, MOST_SPREAD_RECORDS = 10_000, 100_000
"""How many records to read ahead where workers share them, and how many while they are of fewer
partitions than there are workers: one fetch of a partition may hold 10,000 small records.
"""

Polled = Mapping[Partition, Sequence[Record]]


@dataclass(frozen=True)
class BatchLimits:
    """The limits of a batch: how large it may be (``max_bytes`` of keys and values; a single larger
    record is a batch), how long after its first record it is handed out, how many ``workers`` share
    it, in how many ``parts`` it is handed out, and how many parts are read ahead (``ahead``).
    """

    max_records: int = 1000
    max_bytes: int | None = None
    max_wait_s: float = 0.0
    workers: int = 1
    ahead: int = 1
    parts: int = 1


class ReadAhead:
    """The records read ahead. A batch takes equal shares of all partitions. With a ``rate`` it is
    handed out in as many parts as that allows. Not thread-safe.
    """

    def __init__(self, batch_limits: BatchLimits, rate: RateLimiter | None = None) -> None:
        self._limits = batch_limits
        most, parts = batch_limits.max_bytes, batch_limits.parts
        self._max_bytes = math.inf if most is None else most / parts
        self._max_records = -(-batch_limits.max_records // parts)
        self._waiting: dict[Partition, deque[_Part]] = {}
        self._counts: dict[Partition, int] = {}
        self._bytes = 0
        self._record_bytes = 1.0
        self._rate = rate
        self._held: Sequence[Record] = ()  # of a batch, in order, for the rate's sake
        self._due_s: float  # when the next part of these may go

    @property
    def room(self) -> int:
        """How many records to poll for now; 0 while enough records are read ahead."""
        if self._held:
            return 0
        limits, enough = self._limits, self._max_records * self._limits.ahead
        if limits.workers > 1:
            is_spread = len(self._counts) >= limits.workers
            spread = SPREAD_RECORDS if is_spread else MOST_SPREAD_RECORDS
            enough = max(spread, self._max_records * limits.workers)
        room, bytes_left = enough - sum(self._counts.values()), self._max_bytes - self._bytes
        if room <= 0 or bytes_left <= 0:
            return 0
        # No more than will fit, if they are as large as those before: the whole poll is held in
        # memory.
        return int(min(room, max(1.0, bytes_left / self._record_bytes)))

    @property
    def is_empty(self) -> bool:
        return not self._counts and not self._held

    def fits(self, parts: Sequence[Batch]) -> bool:
        """Whether another part fits into a batch that has these ``parts``."""
        limits = self._limits
        if sum(map(len, parts)) + self._max_records > limits.max_records:
            return False
        if limits.max_bytes is None:
            return True
        size = sum(size_of(rows) for part in parts for rows in part.records.values())
        return size + self._max_bytes <= limits.max_bytes

    def add(self, polled: Polled, now_s: float) -> None:
        for where, rows in polled.items():
            if rows:
                part = _Part(now_s, rows, size_of(rows) if self._max_bytes < math.inf else 0)
                self._record_bytes = max(1.0, part.size / len(rows))
                self._waiting.setdefault(where, deque()).append(part)
                self._counts[where] = self._counts.get(where, 0) + len(rows)
                self._bytes += part.size

    def take(self, now_s: float) -> Batch | None:
        """Return the next batch; ``None``: none is complete, or it has to wait."""
        if (rate := self._rate) is None:
            return self._next(now_s)
        if not self._held and (batch := self._next(now_s)) is not None:
            self._hold(batch.merged(), rate, now_s)
        if not self._held or now_s < self._due_s:
            return None
        part = rate.take(self._held, now_s)
        self._hold(self._held[len(part) :], rate, now_s)
        return grouped(part)

    def wait_s(self, now_s: float) -> float | None:
        """Return the seconds until :meth:`take` has something to do; ``None``: no records are
        ahead.
        """
        if self._held:
            return max(0.0, self._due_s - now_s)
        if not self._counts:
            return None
        if self._bytes >= self._max_bytes or sum(self._counts.values()) >= self._max_records:
            return 0.0
        since_s = min(parts[0].at_s for parts in self._waiting.values())
        return max(0.0, since_s + self._limits.max_wait_s - now_s)

    def clear(self) -> None:
        """Drop all records; they will be read again."""
        self._waiting, self._counts, self._bytes, self._held = {}, {}, 0, ()

    def _hold(self, records: Sequence[Record], rate: RateLimiter, now_s: float) -> None:
        self._held = records
        if records:
            self._due_s = now_s + rate.wait_s(records, now_s)

    def _next(self, now_s: float) -> Batch | None:
        if (left_s := self.wait_s(now_s)) is None or left_s > 0:
            return None
        excess = self._bytes - self._max_bytes
        taken: dict[Partition, Sequence[Record]] = {}
        for where, count in shares(self._counts, self._max_records).items():
            if rows := self._cut(where, count, self._bytes - excess, at_least=not taken):
                taken[where] = rows
        for where in taken:  # the others come first next time
            if where in self._counts:
                self._counts[where] = self._counts.pop(where)
        return Batch(taken)

    def _cut(
        self, where: Partition, count: int, max_bytes: float, *, at_least: bool
    ) -> Sequence[Record]:
        """Remove and return the first ``count`` records of a partition, or fewer if these have more
        than ``max_bytes``. With ``at_least`` it is one record at least.
        """
        parts = self._waiting[where]
        taken: list[Sequence[Record]] = []
        while count:
            part = parts.popleft()
            if len(part.rows) > count or part.size > max_bytes:
                first, rest = part.cut(count, max_bytes, at_least=at_least and not taken)
                parts.appendleft(rest)
                part, count = first, len(first.rows)
            if part.rows:
                taken.append(part.rows)
            count -= len(part.rows)
            max_bytes -= part.size
            self._bytes -= part.size
        self._counts[where] -= sum(map(len, taken))
        if not self._counts[where]:
            del self._waiting[where], self._counts[where]
        return taken[0] if len(taken) == 1 else Chained(taken)


class _Part(NamedTuple):
    """Records of one partition, returned by one poll; ``size``: bytes, 0 if no limit needs it."""

    at_s: float
    rows: Sequence[Record]
    size: int

    def cut(self, count: int, max_bytes: float, *, at_least: bool) -> tuple[_Part, _Part]:
        size = size_of(self.rows[:count]) if max_bytes < math.inf else 0
        if size > max_bytes:
            size = 0
            for at, row in enumerate(self.rows[:count]):
                if size + row.size > max_bytes and not (at_least and at == 0):
                    count = at
                    break
                size += row.size
        first = _Part(self.at_s, self.rows[:count], size)
        return first, _Part(self.at_s, self.rows[count:], self.size - size)


def shares(counts: Mapping[Partition, int], most: int) -> dict[Partition, int]:
    """Return how many records to take of each partition, as evenly as possible: ``most`` in all,
    and of each not more than ``counts`` says that there are.
    """
    taken: dict[Partition, int] = {}
    open_ = list(counts)
    while most and open_:
        share = max(1, most // len(open_))
        for where in open_:
            more = min(share, counts[where] - taken.get(where, 0), most)
            if more:
                taken[where] = taken.get(where, 0) + more
                most -= more
        open_ = [where for where in open_ if taken.get(where, 0) < counts[where]]
    return taken
