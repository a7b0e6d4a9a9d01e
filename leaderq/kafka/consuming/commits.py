"""What is on its way to the offset store, within one term: the ends of the batch in hand, or
positions that no effect belongs to.

One thing at a time, so that the store never sees a later offset before an earlier one.
"""

from __future__ import annotations

import logging

from leaderq import clock
from leaderq.errors import KafkaError
from leaderq.kafka.clients.consumer import (
    CommitFuture,
    ConsumerClient,
    EffectRefused,
    KafkaAway,
    Offsets,
)
from leaderq.kafka.stores.offset_store import OffsetStore
from leaderq.term import Term

log = logging.getLogger(__name__)

TELL_AFTER_S = 3.0
_LOOK_S = 0.002


class OffsetCommits:
    """Not thread-safe; no method waits longer than it says."""

    def __init__(self, store: OffsetStore, term: Term) -> None:
        self._store = store
        self._term = term
        self.wanted: Offsets | None = None
        self.outcome: bool | EffectRefused | None = None
        self._commit: CommitFuture | None = None
        self._dropped: CommitFuture | None = None
        self._ends: Offsets = {}
        self._tell_at_s: float | None = None
        self._positions_commit: CommitFuture | None = None
        self._positions: Offsets = {}

    @property
    def is_busy(self) -> bool:
        under_way = self._commit, self._dropped, self._positions_commit
        return self.wanted is not None or any(each is not None for each in under_way)

    @property
    def own(self) -> tuple[Offsets, Offsets]:
        """Offsets of ours that the store may hold, though their commit was not answered."""
        return self.wanted or {}, self._positions

    def request(self, ends: Offsets, *, in_hand: bool) -> None:
        """Commit these ends of the batch in hand soon; without a batch in hand, fail with that."""
        if in_hand:
            self.wanted, self.outcome = ends, None
            self._tell_at_s = clock.now_s() + TELL_AFTER_S
        else:
            self.outcome = False

    @property
    def is_abandoning(self) -> bool:
        """Whether the commit of an abandoned batch is under way, or was at the last look."""
        return self._dropped is not None

    def has_abandoned(self) -> bool:
        """Return whether that commit is over, one way or the other; waits up to 2 ms."""
        try:
            if self._dropped is not None and self._dropped.done(_LOOK_S):
                self._dropped = None
        except KafkaError as exc:
            log.debug("commit failed, nobody waits for it error=%s", exc)
            self._dropped = None
        return self._dropped is None

    def start(self, consumer: ConsumerClient) -> None:
        """Begin to commit the wanted ends, unless something else is under way."""
        self.has_abandoned()
        is_free = self._commit is self._dropped is self._positions_commit is None
        if self.wanted is not None and is_free:
            self._ends = self.wanted
            self._commit = self._store.commit(consumer, self._term, self.wanted)

    def finish(self, *, may_wait: bool) -> Offsets | None:
        """Return the committed ends, once they are, or raise; waits 2 ms if it may."""
        commit = self._commit
        if commit is None:
            return None
        self._commit = None
        if not commit.done(_LOOK_S if may_wait else 0.0):
            self._commit = commit
            # Some clients and stores wait for a server silently; an operator should know.
            if self._tell_at_s is not None and clock.now_s() > self._tell_at_s:
                self._tell_at_s = None
                what = "offset commit is slow, the term continues and waits longer_than_s=%.0f"
                log.warning(what, TELL_AFTER_S)
            return None
        if self._tell_at_s is None:
            log.info("delayed offset commit succeeded")
        return self._ends

    def settled(self, ends: Offsets) -> None:
        if self.wanted == ends:
            self.wanted, self.outcome = None, True

    def refused(self, why: EffectRefused) -> None:
        """The wanted ends cannot be committed; the batch stays in hand."""
        self.wanted, self.outcome = None, why

    def drop(self) -> None:
        """The batch is not in hand any more: its ends will not be committed, unless that is under
        way. Then nothing else is until it is over, because it could be stored after newer ones.
        """
        if self.wanted is not None:
            self._dropped, self._commit = self._commit or self._dropped, None
            self.wanted, self.outcome = None, False

    def commit_positions(self, consumer: ConsumerClient, offsets: Offsets) -> None:
        self._positions = offsets
        self._positions_commit = self._store.commit_positions(consumer, self._term, offsets)

    def finish_positions(self) -> Offsets | None:
        """Return the committed positions, once they are; waits up to 2 ms."""
        commit = self._positions_commit
        if commit is None:
            return None
        self._positions_commit = None
        if commit.done(_LOOK_S):
            return self._positions
        self._positions_commit = commit
        return None

    def commit_positions_now(
        self, consumer: ConsumerClient, offsets: Offsets, wait_s: float
    ) -> None:
        if not self._store.commit_positions(consumer, self._term, offsets).done(wait_s):
            raise KafkaAway("an offset is not stored yet")

    def forget(self) -> None:
        """The consumer was replaced, so the old commit cannot be stored after a newer one: stop
        waiting for it, and commit the wanted ends again.
        """
        self._commit = self._dropped = self._positions_commit = None
