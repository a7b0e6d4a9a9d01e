"""What is on its way to the offset store, within one term: the ends of the batch in hand, or
positions that no effect belongs to. One :class:`OffsetCommit` is the record of each.

One thing at a time, so that the store never sees a later offset before an earlier one.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from enum import Enum

from leaderq.base import clock
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
    """One commit that is under way."""

    kind: CommitKind
    future: CommitFuture


class OffsetCommits:
    """Not thread-safe; no method waits longer than it says."""

    def __init__(self, store: OffsetStore, term: Term) -> None:
        self._store = store
        self._term = term
        self.wanted: Offsets | None = None
        """The ends of the batch in hand that are to be committed; ``None``: nobody has asked."""
        self.outcome: bool | EffectRefused | None = None
        self._under_way: OffsetCommit | None = None
        self._positions: Offsets = {}
        self._asked_s = 0.0
        self._is_told = False
        self._silent_since_s: float | None = None

    @property
    def is_busy(self) -> bool:
        return self.wanted is not None or self._under_way is not None

    @property
    def own(self) -> tuple[Offsets, Offsets]:
        """The offsets that the store may hold because this leader has asked to commit them, without
        an answer yet: ends of the batch in hand, and positions.
        """
        return self.wanted or {}, self._positions

    @property
    def silent_s(self) -> float:
        """For how many seconds commits have been under way or repeated without success."""
        since_s = self._silent_since_s
        return 0.0 if since_s is None else clock.now_s() - since_s

    def request(self, ends: Offsets, *, in_hand: bool) -> None:
        """Commit these ends of the batch in hand soon; without a batch in hand, fail with that."""
        if in_hand:
            self.wanted, self._asked_s, self._is_told = ends, clock.now_s(), False
        self.outcome = None if in_hand else False

    def start(self, consumer: ConsumerClient) -> None:
        """Begin to commit the wanted ends, unless something else is under way."""
        self.has_abandoned()
        if self.wanted is not None and self._under_way is None:
            self._begun(CommitKind.BATCH, self._store.commit(consumer, self._term, self.wanted))

    def finish(self, *, may_wait: bool) -> Offsets | None:
        """Return the committed ends, once they are, or raise; waits 2 ms if it may."""
        if self.wanted is None:
            return None
        if self._is_over(CommitKind.BATCH, _LOOK_S if may_wait else 0.0):
            if self._is_told:
                log.info("delayed offset commit succeeded")
            return self.wanted
        # Some clients and stores wait for a server silently; an operator should know.
        if not self._is_told and clock.now_s() > self._asked_s + TELL_AFTER_S:
            self._is_told = True
            what = "offset commit is slow, the term continues and waits longer_than_s=%.0f"
            log.warning(what, TELL_AFTER_S)
        return None

    def settled(self, ends: Offsets) -> None:
        if self.wanted == ends:
            self.wanted, self.outcome = None, True

    def refused(self, why: EffectRefused) -> None:
        """The wanted ends cannot be committed; the batch stays in hand."""
        self.wanted, self.outcome, self._silent_since_s = None, why, None

    def drop(self) -> None:
        """The batch is not in hand any more: its ends will not be committed, unless that is under
        way. Then nothing else is until it is over, because it could be stored after newer ones.
        """
        if self.wanted is None:
            return
        self.wanted, self.outcome = None, False
        commit = self._under_way
        if commit is not None and commit.kind is CommitKind.BATCH:
            commit.kind = CommitKind.ABANDONED

    @property
    def is_abandoning(self) -> bool:
        """Whether the commit of an abandoned batch is under way, or was at the last look."""
        return self._under_way is not None and self._under_way.kind is CommitKind.ABANDONED

    def has_abandoned(self) -> bool:
        """Return whether that commit is over, one way or the other; waits up to 2 ms."""
        if not self.is_abandoning:
            return True
        try:
            return self._is_over(CommitKind.ABANDONED, _LOOK_S)
        except KafkaError as exc:
            log.debug("commit failed, nobody waits for it error=%s", exc)
            return True

    def commit_positions(self, consumer: ConsumerClient, offsets: Offsets) -> None:
        """Begin to commit positions while nothing else is under way."""
        self._positions = offsets
        future = self._store.commit_positions(consumer, self._term, offsets)
        self._begun(CommitKind.POSITIONS, future)

    def finish_positions(self) -> Offsets | None:
        """Return the committed positions, once they are, or raise; waits up to 2 ms."""
        return self._positions if self._is_over(CommitKind.POSITIONS, _LOOK_S) else None

    def commit_positions_now(
        self, consumer: ConsumerClient, offsets: Offsets, wait_s: float
    ) -> None:
        if not self._store.commit_positions(consumer, self._term, offsets).done(wait_s):
            raise KafkaAway("an offset is not stored yet")

    def forget(self) -> None:
        """The consumer was replaced, so the old commit cannot be stored after a newer one: stop
        waiting for it, and commit the wanted ends again.
        """
        self._under_way = self._silent_since_s = None

    def _begun(self, kind: CommitKind, future: CommitFuture) -> None:
        self._under_way = OffsetCommit(kind, future)
        if self._silent_since_s is None:
            self._silent_since_s = clock.now_s()

    def _is_over(self, kind: CommitKind, wait_s: float) -> bool:
        """Whether the commit of this kind is stored, within so long; raises if it has failed."""
        commit = self._under_way
        if commit is None or commit.kind is not kind:
            return False
        self._under_way = None  # if it has failed, it is not under way any more
        if not commit.future.done(wait_s):
            self._under_way = commit
            return False
        self._silent_since_s = None
        return True
