"""The log of one simulated partition: records, transaction markers, leader epochs, and what readers
with ``read_committed`` may see of it (pure).

``stable_end`` <= ``end``. The last stable offset is the first offset of the oldest
open transaction; without one, it is the end. A marker takes one offset. Readers never get markers,
nor records of an aborted transaction. ``end`` is also the high watermark: all replicas are in sync.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leaderq.kafka.record import Record
from leaderq.testing.simulation.kafka.error_codes import ErrorCode, RefusedByBroker

NOBODY = -1


class ProducerStamp(NamedTuple):
    """The producer that appends: its id and epoch, and the number of the first record among all
    that this producer has sent to the partition under this epoch.
    """

    producer_id: int = NOBODY
    epoch: int = NOBODY
    sequence: int = 0
    transactional: bool = False


ANYBODY = ProducerStamp()


class FetchedPart(NamedTuple):
    """The result of a fetch from one partition. ``next_offset`` is also after markers and aborted
    records; ``epoch`` is that of the last entry before it (-1: none).
    """

    records: list[Record]
    next_offset: int
    epoch: int


class _Sequence(NamedTuple):
    epoch: int
    next: int
    last_first: int  # the sequence number with which the last batch began
    last_offset: int


class PartitionLog:
    """Append and read. Not thread-safe."""

    def __init__(self, topic: str, number: int) -> None:
        self.topic, self.number = topic, number
        self.epoch = 0
        self._rows: list[Record | None] = []  # None: a marker
        self._owners: list[int] = []
        self._hidden: set[int] = set()
        self._open: dict[int, int] = {}  # the producer's id -> the first offset of its transaction
        self._epochs: list[tuple[int, int]] = []  # an epoch, and where it begins
        self._sequences: dict[int, _Sequence] = {}

    # ---- bounds ----------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The offset of the next entry."""
        return len(self._rows)

    @property
    def stable_end(self) -> int:
        """The last stable offset: no record of an open transaction is before it."""
        return min(self._open.values(), default=self.end)

    def epoch_at(self, offset: int) -> int:
        """The epoch of the leader that wrote the entry at ``offset``; -1 before the first."""
        return next((each for each, begin in reversed(self._epochs) if begin <= offset), -1)

    # ---- writing ---------------------------------------------------------------------------------

    def append(self, rows: Sequence[Record], by: ProducerStamp = ANYBODY) -> int:
        """Append rows; return the offset of the first one. A batch that was appended before (its
        answer was lost) is not appended again.
        """
        if by.producer_id != NOBODY:
            known = self._sequences.get(by.producer_id)
            if known is not None and known.epoch > by.epoch:
                raise RefusedByBroker(ErrorCode.INVALID_PRODUCER_EPOCH, self._place)
            if known is not None and known.epoch == by.epoch:
                if by.sequence == known.last_first:
                    return known.last_offset
                if by.sequence != known.next:
                    raise RefusedByBroker(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, self._place)
            elif by.sequence:
                raise RefusedByBroker(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, self._place)
            following = by.sequence + len(rows)
            self._sequences[by.producer_id] = _Sequence(by.epoch, following, by.sequence, self.end)
        first = self.end
        self._note_epoch(first)
        if by.transactional:
            self._open.setdefault(by.producer_id, first)
        for offset, row in enumerate(rows, first):
            self._rows.append(
                Record(
                    self.topic,
                    self.number,
                    offset,
                    row.timestamp_ms,
                    row.key,
                    row.value,
                    row.headers,
                    self.epoch,
                )
            )
            self._owners.append(by.producer_id if by.transactional else NOBODY)
        return first

    def end_transaction(self, producer_id: int, epoch: int, *, is_committed: bool) -> None:
        """Write the marker that ends a transaction, and refuse earlier epochs from now on."""
        begin = self._open.pop(producer_id, None)
        if begin is not None and not is_committed:
            owners = self._owners
            self._hidden.update(at for at in range(begin, self.end) if owners[at] == producer_id)
        known = self._sequences.get(producer_id)
        if known is None or known.epoch < epoch:
            self._sequences[producer_id] = _Sequence(epoch, 0, -1, -1)
        self._note_epoch(self.end)
        self._rows.append(None)
        self._owners.append(NOBODY)

    def _note_epoch(self, offset: int) -> None:
        if not self._epochs or self._epochs[-1][0] != self.epoch:
            self._epochs.append((self.epoch, offset))

    # ---- reading ---------------------------------------------------------------------------------

    def read(self, offset: int, most: int) -> FetchedPart:
        """Return at most ``most`` records, beginning at ``offset``; raises OFFSET_OUT_OF_RANGE."""
        if not 0 <= offset <= self.end:
            raise RefusedByBroker(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self._place}@{offset}")
        found: list[Record] = []
        rows, hidden, limit = self._rows, self._hidden, self.stable_end
        while offset < limit and len(found) < most:
            row = rows[offset]
            if row is not None and offset not in hidden:
                found.append(row)
            offset += 1
        # markers behind the last record are passed over at once
        while offset < limit and rows[offset] is None:
            offset += 1
        return FetchedPart(found, offset, self.epoch_at(offset - 1))

    def everything(self) -> list[tuple[int, Record | None, bool]]:
        """For judges: the offset of each entry, its record (``None``: a marker), and whether a
        reader with ``read_committed`` may ever see it.
        """
        return [
            (
                offset,
                row,
                row is not None and offset not in self._hidden and offset < self.stable_end,
            )
            for offset, row in enumerate(self._rows)
        ]

    @property
    def _place(self) -> str:
        return f"{self.topic}-{self.number}"
