"""What is on its way to the offset store, within one term: the ends of the batch in hand, or
positions that no effect belongs to. One state and one table say where each event leads.

One thing at a time, so that the store never sees a later offset before an earlier one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from enum import Enum

from leaderq.base import clock
from leaderq.base.arguments import require_finished
from leaderq.errors import KafkaError
from leaderq.kafka.clients.consumer import (
    BatchLost,
    CommitFuture,
    ConsumerClient,
    EffectRefused,
    KafkaAway,
    Offsets,
)
from leaderq.kafka.stores.offset_store import OffsetStore, errors_of
from leaderq.term import Term

log = logging.getLogger(__name__)

TELL_AFTER_S = 3.0
_LOOK_S = 0.002
_COMMITTING = "committing"


class CommitState(Enum):
    """``ASKED``: the career wants the ends of its batch committed, and nothing else is under way.
    ``UNDER_WAY``: they are on their way. ``UNKNOWN``: they are in the store, or their effects are
    gone: only the store can tell. ``POSITIONS``: these are under way; ``AFTER_POSITIONS``: and ends
    are asked for. ``ABANDONED``: the ends of a batch that is not in hand any more are under way;
    ``AFTER_ABANDONED``: and those of another one are asked for.
    """

    IDLE = "idle"
    ASKED = "asked"
    UNDER_WAY = "under way"
    UNKNOWN = "unknown"
    POSITIONS = "positions"
    AFTER_POSITIONS = "after positions"
    ABANDONED = "abandoned"
    AFTER_ABANDONED = "after abandoned"


class CommitEvent(Enum):
    """``ENDED``: what is under way has failed, or nobody has waited for it, or it was forgotten
    with its consumer. ``STORED``: the wanted ends are. ``LOST``: effects are, or may be.
    """

    ASK = "ask"
    BEGIN = "begin"
    STORED = "stored"
    ENDED = "ended"
    REFUSED = "refused"
    LOST = "lost"
    DROP = "drop"


_S, _E = CommitState, CommitEvent
TABLE = {
    (_S.IDLE, _E.ASK): _S.ASKED,
    (_S.IDLE, _E.BEGIN): _S.POSITIONS,
    (_S.ASKED, _E.BEGIN): _S.UNDER_WAY,
    (_S.ASKED, _E.REFUSED): _S.IDLE,
    (_S.ASKED, _E.LOST): _S.UNKNOWN,
    (_S.ASKED, _E.DROP): _S.IDLE,
    (_S.UNDER_WAY, _E.STORED): _S.IDLE,
    (_S.UNDER_WAY, _E.ENDED): _S.ASKED,
    (_S.UNDER_WAY, _E.LOST): _S.UNKNOWN,
    (_S.UNDER_WAY, _E.DROP): _S.ABANDONED,
    (_S.UNKNOWN, _E.STORED): _S.IDLE,
    (_S.UNKNOWN, _E.DROP): _S.IDLE,
    (_S.POSITIONS, _E.ASK): _S.AFTER_POSITIONS,
    (_S.POSITIONS, _E.ENDED): _S.IDLE,
    (_S.AFTER_POSITIONS, _E.ENDED): _S.ASKED,
    (_S.AFTER_POSITIONS, _E.LOST): _S.UNKNOWN,
    (_S.AFTER_POSITIONS, _E.DROP): _S.POSITIONS,
    (_S.ABANDONED, _E.ASK): _S.AFTER_ABANDONED,
    (_S.ABANDONED, _E.ENDED): _S.IDLE,
    (_S.AFTER_ABANDONED, _E.ENDED): _S.ASKED,
    (_S.AFTER_ABANDONED, _E.LOST): _S.UNKNOWN,
    (_S.AFTER_ABANDONED, _E.DROP): _S.ABANDONED,
}
"""Any other event leads nowhere."""
# Not sets: a member of an enum is hashed by Python code, and these are asked many times a batch.
_WANTED = (_S.ASKED, _S.UNDER_WAY, _S.UNKNOWN, _S.AFTER_POSITIONS, _S.AFTER_ABANDONED)
_ABANDONING = (_S.ABANDONED, _S.AFTER_ABANDONED)
_SHOWING = (_S.POSITIONS, _S.AFTER_POSITIONS)


def abandoned() -> BatchLost:
    return BatchLost("the batch was abandoned; what is not done of it is handed out again")


class OffsetCommits:
    """Not thread-safe; no method waits longer than it says."""

    # from the first request, or the first commit, on
    _ends: Offsets
    _asked_s: float
    _is_told: bool
    _future: CommitFuture

    def __init__(self, store: OffsetStore, term: Term) -> None:
        self._store = store
        self._term = term
        self.state = CommitState.IDLE
        self.failure: BatchLost | EffectRefused | None = None
        """Why the ends that were wanted last are not committed."""
        self._positions: Offsets = {}
        self._silent_since_s: float | None = None

    def _step(self, event: CommitEvent) -> None:
        self.state = TABLE.get((self.state, event), self.state)

    @property
    def wanted(self) -> Offsets | None:
        """The ends of the batch in hand that are to be committed; ``None``: nobody has asked."""
        return self._ends if self.state in _WANTED else None

    @property
    def is_busy(self) -> bool:
        return self.state is not CommitState.IDLE

    @property
    def is_abandoning(self) -> bool:
        """Whether the commit of an abandoned batch is under way, or was at the last look."""
        return self.state in _ABANDONING

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
        if not in_hand:
            self.failure = abandoned()
            return
        self._ends, self.failure, self._asked_s, self._is_told = ends, None, clock.now_s(), False
        self._step(CommitEvent.ASK)

    def start(self, consumer: ConsumerClient) -> None:
        """Begin to commit the wanted ends, unless something else is under way."""
        if self.state is CommitState.ASKED:
            self._begin(lambda: self._store.commit(consumer, self._term, self._ends))

    def finish(self, *, may_wait: bool) -> Offsets | None:
        """Return the ends if they are committed by now, else ``None``. With ``may_wait``, look for
        up to 2 ms. Raises what the commit raised.
        """
        if self.wanted is None:
            return None
        if self.state is CommitState.UNDER_WAY and self._is_over(_LOOK_S if may_wait else 0.0):
            if self._is_told:
                log.info("delayed offset commit succeeded")
            self.stored()
            return self._ends
        # Some clients and stores wait for a server silently; an operator should know.
        if not self._is_told and clock.now_s() > self._asked_s + TELL_AFTER_S:
            self._is_told = True
            what = "offset commit is slow, the term continues and waits longer_than_s=%.0f"
            log.warning(what, TELL_AFTER_S)
        return None

    def stored(self) -> None:
        """The wanted ends are."""
        self._step(CommitEvent.STORED)

    def refused(self, why: EffectRefused) -> None:
        """The wanted ends cannot be committed; the batch stays in hand."""
        self._step(CommitEvent.REFUSED)
        self.failure, self._silent_since_s = why, None

    def lost(self) -> bool:
        """Whether effects of the wanted ends may be lost: only the store can tell."""
        self._step(CommitEvent.LOST)
        return self.state is CommitState.UNKNOWN

    def drop(self) -> None:
        """Give up the batch in hand: its ends will not be committed. If a commit of them is already
        under way, no other commit begins until that one is over, because it could be stored after
        newer ends.
        """
        if self.wanted is not None:
            self._step(CommitEvent.DROP)
            self.failure = abandoned()

    def is_abandonment_over(self) -> bool:
        """Return whether the commit of an abandoned batch is over, one way or the other; waits up
        to 2 ms.
        """
        if not self.is_abandoning:
            return True
        try:
            is_over = self._is_over(_LOOK_S)
        except KafkaError as exc:
            log.debug("commit failed, nobody waits for it error=%s", exc)
            return True
        if is_over:
            self._step(CommitEvent.ENDED)
        return is_over

    def commit_positions(self, consumer: ConsumerClient, offsets: Offsets) -> None:
        """Begin to commit positions while nothing else is under way."""
        self._positions = offsets
        self._begin(lambda: self._store.commit_positions(consumer, self._term, offsets))

    def finish_positions(self) -> Offsets | None:
        """Return the positions if they are committed within 2 ms, else ``None``. Raises what the
        commit raised.
        """
        positions = self._positions
        if self.state not in _SHOWING or not self._is_over(_LOOK_S):
            return None
        self._step(CommitEvent.ENDED)
        return positions

    def commit_positions_now(
        self, consumer: ConsumerClient, offsets: Offsets, wait_s: float
    ) -> None:
        with errors_of(self._store, _COMMITTING):
            is_stored = self._store.commit_positions(consumer, self._term, offsets).done(wait_s)
        self._require_answer(is_stored)
        if not is_stored:
            raise KafkaAway("an offset is not stored yet")

    def forget(self) -> None:
        """The consumer was replaced, so the old commit cannot be stored after a newer one: stop
        waiting for it, and commit the wanted ends again.
        """
        self._step(CommitEvent.ENDED)
        self._silent_since_s = None

    def _begin(self, begin: Callable[[], CommitFuture]) -> None:
        with errors_of(self._store, _COMMITTING):
            self._future = begin()
        self._step(CommitEvent.BEGIN)
        if self._silent_since_s is None:
            self._silent_since_s = clock.now_s()

    def _is_over(self, wait_s: float) -> bool:
        """Whether what is under way is stored, within so long; raises if it has failed."""
        try:
            with errors_of(self._store, _COMMITTING):
                is_stored = self._future.done(wait_s)
            self._require_answer(is_stored)
        except BaseException:
            self._step(CommitEvent.ENDED)  # it is not under way any more
            raise
        if is_stored:
            self._silent_since_s = None
            self._positions = {}
        return is_stored

    def _require_answer(self, is_stored: object) -> None:
        """A coroutine is true, and nobody has awaited it."""
        if not isinstance(is_stored, bool):
            what = f"done() of what the offset store {self._store.word!r} stores"
            require_finished(is_stored, what)
