"""How far one term has handed out and saved: bookkeeping without threads or sockets.

For each partition ``saved`` <= ``handed``: ``saved`` is what the store is known to hold, ``handed`` is where the batch in hand
ends, and what is read ahead begins. Only this file decides where reading goes on after the store was asked again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection
from operator import attrgetter

from leaderq.kafka.clients.drain import Offsets
from leaderq.kafka.record import Batch, Partition


class Progress:
    """The offsets of one term. Not thread-safe."""

    def __init__(self, saved: Offsets) -> None:
        self.saved = dict(saved)
        self.handed = dict(saved)
        self.in_hand: Batch | None = None

    def hand(self, batch: Batch) -> None:
        """``batch`` is handed out."""
        self.in_hand = batch
        self.handed.update(batch.ends)

    def settle(self, ends: Offsets) -> None:
        """These offsets of the batch in hand were saved; what is left of it stays in hand."""
        self.saved.update(ends)
        if self.in_hand is not None:
            self.in_hand = rest_of(self.in_hand, self.saved)

    def let_go(self) -> None:
        """The batch in hand is not to be saved: reading goes on where it began, or where a part of it was saved."""
        if self.in_hand is not None:
            self.handed.update({partition: self.saved[partition] for partition in self.in_hand.ends})
            self.in_hand = None

    def advance(self, positions: Offsets) -> None:
        """These positions (past transaction markers, with no record between) were saved while nothing was in hand."""
        for partition, offset in positions.items():
            if partition in self.saved:
                self.saved[partition] = max(offset, self.saved[partition])
                self.handed[partition] = max(offset, self.handed[partition])

    def resume(self, stored: Offsets, held: Collection[Partition], *own: Offsets) -> frozenset[Partition]:
        """The store was asked again and holds ``stored``; gives the partitions that somebody else moved.

        What the store holds is the truth. An offset equal to what was saved, or to one in ``own``, what was just being saved (the
        answer was lost), is this term's own. Any other was set by somebody else: reading goes on there, and the batch in hand is
        let go of.
        """
        moved = frozenset(
            partition
            for partition, offset in stored.items()
            if partition in self.saved and offset not in {self.saved[partition], *(one.get(partition) for one in own)}
        )
        if self.in_hand is not None and moved & set(self.in_hand.ends):
            self.let_go()
        for partition in moved:
            self.saved[partition] = self.handed[partition] = stored[partition]
        for partition in set(self.saved) - set(held):
            del self.saved[partition], self.handed[partition]
        return moved

    def add(self, starts: Offsets) -> None:
        """Partitions met for the first time, or to be read anew, and where to begin."""
        self.saved.update(starts)
        self.handed.update(starts)


def rest_of(batch: Batch, saved: Offsets) -> Batch | None:
    """What of ``batch`` is not saved yet; ``None`` if nothing is."""
    ends = {partition: end for partition, end in batch.ends.items() if saved[partition] < end}
    if len(ends) == len(batch.ends) and all(
        not rows or saved[partition] <= rows[0].offset for partition, rows in batch.records.items()
    ):
        return batch
    records = {
        partition: rows[bisect_left(rows, saved[partition], key=attrgetter("offset")) :]
        for partition, rows in batch.records.items()
        if partition in ends
    }
    return Batch(records=records, ends=ends) if ends else None
