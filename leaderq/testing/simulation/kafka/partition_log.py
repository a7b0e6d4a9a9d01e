"""The log of one simulated partition: records, transaction markers, leader epochs, and what readers
with ``read_committed`` may see of it (pure).

``start`` <= ``stable_end`` <= ``end``. The last stable offset is the first offset of the oldest
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
    """Append, read, cut off, delete. Not thread-safe."""

    __slots__ = (
        "_epochs",
        "_first",
        "_hidden",
        "_open",
        "_owners",
        "_rows",
        "_sequences",
        "epoch",
        "number",
        "start",
        "topic",
    )

    def __init__(self, topic: str, number: int) -> None:
        self.topic, self.number = topic, number
        self.start = 0
        self.epoch = 0
        self._first = 0  # the offset of _rows[0]
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
        return self._first + len(self._rows)

    @property
    def stable_end(self) -> int:
        """The last stable offset: no record of an open transaction is before it."""
        return min(self._open.values(), default=self.end)

    def end_of_epoch(self, epoch: int) -> int:
        """The offset at which the records of leaders up to ``epoch`` end (KIP-320)."""
        return next((begin for each, begin in self._epochs if each > epoch), self.end)

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
            owners, first = self._owners, self._first
            self._hidden.update(
                offset for offset in range(begin, self.end) if owners[offset - first] == producer_id
            )
        known = self._sequences.get(producer_id)
        if known is None or known.epoch < epoch:
            self._sequences[producer_id] = _Sequence(epoch, 0, -1, -1)
        self._note_epoch(self.end)
        self._rows.append(None)
        self._owners.append(NOBODY)

    def _note_epoch(self, offset: int) -> None:
        if not self._epochs or self._epochs[-1][0] != self.epoch:
            self._epochs.append((self.epoch, offset))

    def cut_off(self, end: int) -> None:
        """Lose every entry from ``end`` on, because a leader was elected that did not have them."""
        keep = max(0, end - self._first)
        del self._rows[keep:], self._owners[keep:]
        self._hidden = {offset for offset in self._hidden if offset < end}
        self._open = {each: begin for each, begin in self._open.items() if begin < end}
        self._epochs = [(each, begin) for each, begin in self._epochs if begin < end]

    def delete_before(self, offset: int) -> None:
        """Lose every entry before ``offset``, because its retention time is over."""
        gone = min(offset, self.end) - self._first
        if gone > 0:
            del self._rows[:gone], self._owners[:gone]
            self._first += gone
            self.start = self._first
            self._hidden = {each for each in self._hidden if each >= self._first}

    # ---- reading ---------------------------------------------------------------------------------

    def read(
        self, offset: int, most: int, *, after_epoch: int = -1, is_stable: bool = True
    ) -> FetchedPart:
        """Return at most ``most`` records, beginning at ``offset``; raises OFFSET_OUT_OF_RANGE."""
        if not self.start <= offset <= self.end:
            raise RefusedByBroker(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self._place}@{offset}")
        found: list[Record] = []
        limit = self.stable_end if is_stable else self.end
        rows, hidden, first = self._rows, self._hidden, self._first
        while offset < limit and len(found) < most:
            row = rows[offset - first]
            if row is not None and not (is_stable and hidden and offset in hidden):
                found.append(row)
            offset += 1
        # markers behind the last record are passed over at once
        while offset < limit and rows[offset - first] is None:
            offset += 1
        return FetchedPart(found, offset, self.epoch_at(offset - 1) if offset else after_epoch)

    def has_diverged(self, offset: int, epoch: int) -> bool:
        """Whether the record before ``offset`` that the leader of ``epoch`` wrote is gone."""
        return epoch >= 0 and offset > self.end_of_epoch(epoch)

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
            for offset, row in enumerate(self._rows, self._first)
        ]

    @property
    def _place(self) -> str:
        return f"{self.topic}-{self.number}"
