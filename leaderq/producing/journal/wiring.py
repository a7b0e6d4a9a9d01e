"""The parts of an open journal, put together: who stores, who reads, who keeps what is done with.

A part that calls another which is made after it gets that one here; nobody else sets these.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from leaderq.producing.journal.acknowledging import Acknowledging
from leaderq.producing.journal.committer import GROUP_BYTES, Committer
from leaderq.producing.journal.counters import Counters
from leaderq.producing.journal.disk import Disk
from leaderq.producing.journal.entry import Entry
from leaderq.producing.journal.keeper import Keeper
from leaderq.producing.journal.limits import allotment
from leaderq.producing.journal.opening import First
from leaderq.producing.journal.policy import EVERY_ITEM, Interval, Policy
from leaderq.producing.journal.reader import Reader
from leaderq.producing.journal.store import Store


@dataclass(frozen=True)
class Wiring:
    """What the parts share, and what they are told. ``first`` is what opening found."""

    disk: Disk
    directory: Path
    gate: threading.Lock
    counters: Counters
    first: First
    policy: Policy
    segment_bytes: int
    reserve_bytes: int
    clock: Callable[[], float]
    on_expired: Callable[[Entry], object] | None

    def keeper(self) -> Keeper:
        """Saves the cursor, and lets segments go."""
        return Keeper(self.disk, self.directory, self.gate, self.first.shelf, self.counters, sequence=self.first.sequence)

    def store(self, keeper: Keeper) -> Store:
        """Writes segments."""
        return Store(
            self.disk,
            self.directory,
            self.gate,
            self.first.shelf,
            keeper,
            self.counters,
            policy=self.policy,
            segment_bytes=self.segment_bytes,
            reserve_bytes=self.reserve_bytes,
            clock=self.clock,
            next_id=self.first.next_id,
            previous=self.first.previous,
            stamp=self.first.stamp,
            allot_bytes=allotment(self.segment_bytes, is_durable=self.policy == EVERY_ITEM),
        )

    def acknowledging(self, store: Store) -> Acknowledging:
        """Marks what is done with."""
        return Acknowledging(
            self.gate,
            self.first.shelf,
            store,
            self.counters,
            large_bytes=self.segment_bytes // 2,
            damages=self.first.report.damages,
            on_expired=self.on_expired,
        )

    def reader(self, keeper: Keeper, store: Store, acks: Acknowledging) -> Reader:
        """Reads; the keeper begins, now that there is somebody to tell what it lets go.

        :raises OSError: there can be no segment to write to.
        """
        reader = Reader(self.disk, self.gate, self.first.shelf, acks.lose)
        keeper.next_id = lambda: store.next_id
        keeper.forget = reader.forget
        store.begin(keeper)
        return reader

    def committer(self, keeper: Keeper, store: Store, acks: Acknowledging) -> Committer:
        """Takes what is to be stored; its thread runs."""

        def with_pen() -> None:
            store.sync()
            acks.with_pen()

        committer = acks.committer = Committer(
            self.gate,
            store=store.store,
            settle=store.settle,
            chores=keeper.tidy,
            with_pen=with_pen,
            group_bytes=min(GROUP_BYTES, self.segment_bytes),
            with_pen_every_s=self.policy.seconds if isinstance(self.policy, Interval) else None,
        )
        committer.start()
        return committer
