"""How far one term has read, handed out and saved: bookkeeping without threads or sockets.

For each partition ``saved`` <= ``given``: ``saved`` is what the store is known to hold, ``given`` is where the next read begins.
Between them lies the batch in hand, if any. Only this file decides where reading goes on after the group was joined again.
"""

from __future__ import annotations

from collections.abc import Collection

from leaderq.kafka.drain import Offsets
from leaderq.kafka.record import Batch, Partition


class Progress:
    """The offsets of one term. Not thread-safe."""

    def __init__(self, saved: Offsets) -> None:
        self.saved = dict(saved)
        self.given = dict(saved)
        self.in_hand: Batch | None = None

    def give(self, batch: Batch) -> None:
        """``batch`` was read, and is to be handed out."""
        self.in_hand = batch
        self.given.update(batch.ends)

    def settle(self) -> None:
        """The batch in hand was saved."""
        if self.in_hand is not None:
            self.saved.update(self.in_hand.ends)
            self.in_hand = None

    def advance(self, positions: Offsets) -> None:
        """Nothing is in hand, and these positions (past transaction markers) were saved."""
        for partition, offset in positions.items():
            if offset >= self.given.get(partition, 0):
                self.saved[partition] = self.given[partition] = offset

    def resume(self, stored: Offsets, held: Collection[Partition]) -> frozenset[Partition]:
        """The group was joined again and the store holds ``stored``; gives the partitions that somebody else moved.

        What the store holds is the truth. An offset equal to what was saved, or to the end of the batch in hand (a commit whose
        answer was lost), is this term's own. Any other was set by somebody else: reading goes on there, and the batch in hand is
        let go of, uncommitted.
        """
        ends = self.in_hand.ends if self.in_hand else {}
        moved = frozenset(
            partition
            for partition, offset in stored.items()
            if partition in self.saved and offset not in (self.saved[partition], ends.get(partition))
        )
        if moved & set(ends):
            self.given.update({partition: self.saved[partition] for partition in ends})
            self.in_hand = None
        for partition in moved:
            self.saved[partition] = self.given[partition] = stored[partition]
        for partition in set(self.saved) - set(held):
            del self.saved[partition], self.given[partition]
        return moved

    def add(self, starts: Offsets) -> None:
        """Partitions met for the first time, and where to begin."""
        self.saved.update(starts)
        self.given.update(starts)
