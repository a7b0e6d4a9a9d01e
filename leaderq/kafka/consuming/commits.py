"""What is on its way to the offset store, within one term: the ends of the batch in hand, or
positions that no effect belongs to. One :class:`OffsetCommit` is the record of each.

One thing at a time, so that the store never sees a later offset before an earlier one.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum

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


class CommitKind(Enum):
    """``BATCH``: of the batch in hand, for which the career waits. ``ABANDONED``: begun for a batch
    that is not in hand any more: nobody waits for it. ``POSITIONS``: no effect belongs to them.
    """

    BATCH = "batch"
    ABANDONED = "abandoned"
    POSITIONS = "positions"


@dataclass(eq=False)
class OffsetCommit:
    """One commit, asked for at ``asked_s``; ``future``: it is under way."""

    kind: CommitKind
    offsets: Offsets
    asked_s: float
    future: CommitFuture | None = None
    is_told: bool = False

    def is_done(self, wait_s: float) -> bool:
        """Whether it is stored, within ``wait_s``. If it failed, it is not under way any more."""
        future, self.future = self.future, None
        if future is None or future.done(wait_s):
            return future is not None
        self.future = future
        return False


class OffsetCommits:
    """Not thread-safe; no method waits longer than it says."""

    def __init__(self, store: OffsetStore, term: Term) -> None:
        self._store = store
        self._term = term
        self.outcome: bool | EffectRefused | None = None
        self._batch: OffsetCommit | None = None
        self._other: OffsetCommit | None = None  # under way; the batch's waits for it
        self._positions: Offsets = {}
        self._silent_since_s: float | None = None

    @property
    def wanted(self) -> Offsets | None:
        """The ends of the batch in hand that are to be committed; ``None``: nobody has asked."""
        return None if self._batch is None else self._batch.offsets

    @property
    def is_busy(self) -> bool:
        return self._batch is not None or self._other is not None

    @property
    def own(self) -> tuple[Offsets, Offsets]:
        """Offsets of ours that the store may hold, though their commit was not answered."""
        return self.wanted or {}, self._positions

    @property
    def silent_s(self) -> float:
        """How long commits have been under way, or repeated, and none of them has succeeded."""
        since_s = self._silent_since_s
        return 0.0 if since_s is None else clock.now_s() - since_s

    def request(self, ends: Offsets, *, in_hand: bool) -> None:
        """Commit these ends of the batch in hand soon; without a batch in hand, fail with that."""
        if in_hand:
            self._batch = OffsetCommit(CommitKind.BATCH, ends, clock.now_s())
        self.outcome = None if in_hand else False

    def start(self, consumer: ConsumerClient) -> None:
        """Begin to commit the wanted ends, unless something else is under way."""
        self.has_abandoned()
        batch = self._batch
        if batch is not None and batch.future is None and self._other is None:
            batch.future = self._store.commit(consumer, self._term, batch.offsets)
            self._begun()

    def finish(self, *, may_wait: bool) -> Offsets | None:
        """Return the committed ends, once they are, or raise; waits 2 ms if it may."""
        batch = self._batch
        if batch is None:
            return None
        if batch.is_done(_LOOK_S if may_wait else 0.0):
            self._silent_since_s = None
            if batch.is_told:
                log.info("delayed offset commit succeeded")
            return batch.offsets
        # Some clients and stores wait for a server silently; an operator should know.
        if not batch.is_told and clock.now_s() > batch.asked_s + TELL_AFTER_S:
            batch.is_told = True
            what = "offset commit is slow, the term continues and waits longer_than_s=%.0f"
            log.warning(what, TELL_AFTER_S)
        return None

    def settled(self, ends: Offsets) -> None:
        if self.wanted == ends:
            self._batch, self.outcome = None, True

    def refused(self, why: EffectRefused) -> None:
        """The wanted ends cannot be committed; the batch stays in hand."""
        self._batch, self.outcome, self._silent_since_s = None, why, None

    def drop(self) -> None:
        """The batch is not in hand any more: its ends will not be committed, unless that is under
        way. Then nothing else is until it is over, because it could be stored after newer ones.
        """
        batch, self._batch = self._batch, None
        if batch is None:
            return
        self.outcome = False
        if batch.future is not None:
            batch.kind, self._other = CommitKind.ABANDONED, batch

    @property
    def is_abandoning(self) -> bool:
        """Whether the commit of an abandoned batch is under way, or was at the last look."""
        return self._other is not None and self._other.kind is CommitKind.ABANDONED

    def has_abandoned(self) -> bool:
        """Return whether that commit is over, one way or the other; waits up to 2 ms."""
        other = self._other
        if other is None or other.kind is not CommitKind.ABANDONED:
            return True
        try:
            return self._is_over(other)
        except KafkaError as exc:
            log.debug("commit failed, nobody waits for it error=%s", exc)
            return True

    def commit_positions(self, consumer: ConsumerClient, offsets: Offsets) -> None:
        """Begin to commit positions while nothing else is under way."""
        self._positions = offsets
        future = self._store.commit_positions(consumer, self._term, offsets)
        self._other = OffsetCommit(CommitKind.POSITIONS, offsets, clock.now_s(), future)
        self._begun()

    def finish_positions(self) -> Offsets | None:
        """Return the committed positions, once they are, or raise; waits up to 2 ms."""
        other = self._other
        if other is None or other.kind is not CommitKind.POSITIONS or not self._is_over(other):
            return None
        return other.offsets

    def _is_over(self, other: OffsetCommit) -> bool:
        self._other = None  # if it fails, nobody begins it again
        if other.is_done(_LOOK_S):
            self._silent_since_s = None
            return True
        self._other = other
        return False

    def _begun(self) -> None:
        if self._silent_since_s is None:
            self._silent_since_s = clock.now_s()

    def commit_positions_now(
        self, consumer: ConsumerClient, offsets: Offsets, wait_s: float
    ) -> None:
        if not self._store.commit_positions(consumer, self._term, offsets).done(wait_s):
            raise KafkaAway("an offset is not stored yet")

    def forget(self) -> None:
        """The consumer was replaced, so the old commit cannot be stored after a newer one: stop
        waiting for it, and commit the wanted ends again.
        """
        self._other = self._silent_since_s = None
        if self._batch is not None:
            self._batch.future = None
