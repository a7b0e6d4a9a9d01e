"""Reading ahead: what was read and not yet handed out, cut into batches of the shape that the
career asks for (pure).

Reading ahead costs memory (:data:`DEPTH` batches), and buys that the next batch is there when the
last one is committed: records are taken from the network and unpacked while a handler waits for its
database, and while an offset is on its way to its store. A second batch ahead would buy nothing:
one thread at a time runs in Python, and what it makes early it has to keep. What is ahead is only
ever read; it is dropped without loss whenever the positions are set again. Several polls fill one
batch, unless it is asked for before it is full.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from leaderq.kafka.record import Batch, Chained, Partition, Record, batch_of, size_of

DEPTH = 1

Polled = Mapping[Partition, Sequence[Record]]


@dataclass(frozen=True)
class BatchLimits:
    """How large a batch may get, and how long it may take to fill.

    ``max_records`` records; ``max_bytes`` of keys and values together (``None``: no limit; a single
    record may exceed it);
    ``max_wait_s`` after its first record was read a batch is handed out although it is not full.
    """

    max_records: int = 1000
    max_bytes: int | None = None
    max_wait_s: float = 0.0


class ReadAhead:
    """The batches that wait. Not thread-safe."""

    def __init__(self, batch_limits: BatchLimits) -> None:
        self._limits = batch_limits
        self._full: deque[Batch] = deque()
        self._filling: dict[Partition, list[Sequence[Record]]] = {}
        self._count = 0
        self._bytes = 0
        self._record_bytes = 1.0
        self._since_s = 0.0

    @property
    def room(self) -> int:
        """How many records to poll for now; 0 while enough is ahead."""
        if len(self._full) >= DEPTH:
            return 0
        room, limit = self._limits.max_records - self._count, self._limits.max_bytes
        # No more than will fit, if they are as large as those before: what a poll returns is held.
        return room if limit is None else min(room, max(1, int((limit - self._bytes) / self._record_bytes)))

    @property
    def is_empty(self) -> bool:
        """Whether nothing is ahead."""
        return not self._full and not self._count

    def add(self, polled: Polled, now_s: float) -> None:
        """What a poll gave, at most :attr:`room` records."""
        for partition, rows in polled.items():
            for part in self._fitting(rows):
                if not self._count:
                    self._since_s = now_s
                self._filling.setdefault(partition, []).append(part)
                self._count += len(part)
        if self._is_filled:
            self._close()

    def take(self, now_s: float) -> Batch | None:
        """The next batch, if one is full or has waited long enough."""
        if not self._full and self._count and now_s >= self._since_s + self._limits.max_wait_s:
            self._close()
        return self._full.popleft() if self._full else None

    def wait_s(self, now_s: float) -> float | None:
        """Seconds until a batch that is not full is handed out; ``None``: there is none."""
        return max(0.0, self._since_s + self._limits.max_wait_s - now_s) if self._count else None

    def clear(self) -> None:
        """Drop everything: it will be read again."""
        self._full.clear()
        self._filling, self._count, self._bytes = {}, 0, 0

    @property
    def _is_filled(self) -> bool:
        limit = self._limits.max_bytes
        return self._count >= self._limits.max_records or (limit is not None and self._bytes >= limit)

    def _fitting(self, rows: Sequence[Record]) -> Iterator[Sequence[Record]]:
        """``rows`` cut where a batch reaches its bytes; closes the batch before each part but the
        first.
        """
        limit = self._limits.max_bytes
        size = 0 if limit is None else size_of(rows)
        self._record_bytes = max(1.0, size / max(1, len(rows)))
        if limit is None or self._bytes + size <= limit:
            self._bytes += size
            yield rows
            return
        begin = 0
        for at, row in enumerate(rows):
            if (self._count or at > begin) and self._bytes + row.size > limit:
                if at > begin:
                    yield rows[begin:at]
                begin = at
                self._close()
            self._bytes += row.size
        yield rows[begin:]

    def _close(self) -> None:
        self._full.append(batch_of({where: _joined(parts) for where, parts in self._filling.items()}))
        self._filling, self._count, self._bytes = {}, 0, 0


def _joined(parts: list[Sequence[Record]]) -> Sequence[Record]:
    return parts[0] if len(parts) == 1 else Chained(parts)
