"""What is on its way to the offset store, within one term: the ends of the batch in hand, or
positions that no effect belongs to.

One thing at a time, so that the store never sees a later offset before an earlier one.
"""

from __future__ import annotations

import logging

from leaderq.clock import now_s
from leaderq.errors import KafkaError
from leaderq.kafka.clients.consumer import CommitFuture, ConsumerClient, KafkaAway, Offsets
from leaderq.kafka.stores.offset_store import OffsetStore
from leaderq.term import Term

log = logging.getLogger(__name__)

TELL_AFTER_S = 3.0
_LOOK_S = 0.002


class OffsetCommits:
    """Not thread-safe; none of its methods waits, except as far as it says."""

    def __init__(self, store: OffsetStore, term: Term) -> None:
        self._store = store
        self._term = term
        self.wanted: Offsets | None = None
        self.outcome: bool | None = None
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
        """Offsets that the store may hold without anybody else having put them there."""
        return self.wanted or {}, self._positions

    def request(self, ends: Offsets, *, in_hand: bool) -> None:
        """Commit these ends of the batch in hand soon; if none is, that is the outcome."""
        if in_hand:
            self.wanted, self.outcome = ends, None
        else:
            self.outcome = False

    @property
    def is_letting_go(self) -> bool:
        """Whether the commit of a batch let go of is under way, or was at the last look."""
        return self._dropped is not None

    def has_let_go(self) -> bool:
        """Whether that is over, one way or the other; waits up to 2 ms."""
        try:
            if self._dropped is not None and self._dropped.done(_LOOK_S):
                self._dropped = None
        except KafkaError as exc:
            log.debug("commit failed that nobody waits for error=%s", exc)
            self._dropped = None
        return self._dropped is None

    def start(self, consumer: ConsumerClient) -> None:
        """Begin to commit what is wanted, unless something else is under way."""
        self.has_let_go()
        is_free = self._commit is self._dropped is self._positions_commit is None
        if self.wanted is not None and is_free:
            self._ends = self.wanted
            self._tell_at_s = now_s() + TELL_AFTER_S
            self._commit = self._store.commit(consumer, self._term, self.wanted)

    def finish(self, *, may_wait: bool) -> Offsets | None:
        """What has been committed, once it is, or raise; waits 2 ms if it may."""
        commit = self._commit
        if commit is None:
            return None
        self._commit = None
        if not commit.done(_LOOK_S if may_wait else 0.0):
            self._commit = commit
            # Some clients and stores wait for a server without a word; an operator should know.
            if self._tell_at_s is not None and now_s() > self._tell_at_s:
                self._tell_at_s = None
                what = "offset commit takes long, the term goes on and waits longer_than_s=%.0f"
                log.warning(what, TELL_AFTER_S)
            return None
        if self._tell_at_s is None:
            log.info("delayed offset commit succeeded")
        return self._ends

    def settled(self, ends: Offsets) -> None:
        if self.wanted == ends:
            self.wanted, self.outcome = None, True

    def drop(self) -> None:
        """The batch is not in hand any more: what was wanted of it will not be committed, unless it
        is under way. Then nothing else is, until that is over: it could be stored after the newer.
        """
        if self.wanted is not None:
            self._dropped, self._commit = self._commit or self._dropped, None
            self.wanted, self.outcome = None, False

    def commit_positions(self, consumer: ConsumerClient, offsets: Offsets) -> None:
        self._positions = offsets
        self._positions_commit = self._store.commit_positions(consumer, self._term, offsets)

    def finish_positions(self) -> Offsets | None:
        """What has been committed, once it is; waits up to 2 ms."""
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
        """The consumer is another now, so what was under way cannot be stored after something
        newer: ask no more about it; what is wanted will be committed again.
        """
        self._commit = self._dropped = self._positions_commit = None
