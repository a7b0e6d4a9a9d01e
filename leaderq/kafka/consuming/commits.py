"""What is on its way to the offset store, within one term: the ends of the batch in hand, or
offsets that no effect belongs to.

One thing at a time, so that the store never sees a later offset before an earlier one.
"""

from __future__ import annotations

import logging

from leaderq.clock import now_s
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
        self._saving: CommitFuture | None = None
        self._saving_ends: Offsets = {}
        self._tell_at_s: float | None = None
        self._placing: CommitFuture | None = None
        self._placed: Offsets = {}

    @property
    def is_busy(self) -> bool:
        """Whether anything is to be saved, or under way."""
        return self.wanted is not None or self._saving is not None or self._placing is not None

    @property
    def own(self) -> tuple[Offsets, Offsets]:
        """Offsets that the store may hold without anybody else having put them there."""
        return self.wanted or {}, self._placed

    def want(self, ends: Offsets, *, in_hand: bool) -> None:
        """Save these ends of the batch in hand as soon as may be; if none is in hand any more, that
        is the outcome.
        """
        if in_hand:
            self.wanted, self.outcome = ends, None
        else:
            self.outcome = False

    def begin(self, consumer: ConsumerClient) -> None:
        """Begin to save what is wanted, unless something else is under way."""
        if self.wanted is not None and self._saving is None and self._placing is None:
            self._saving_ends = self.wanted
            self._tell_at_s = now_s() + TELL_AFTER_S
            self._saving = self._store.save(consumer, self._term, self.wanted)

    def finish(self, *, may_wait: bool) -> Offsets | None:
        """What has been saved, once it is; waits 2 ms if it may. Raises what the saving raises,
        which ends the attempt.
        """
        saving = self._saving
        if saving is None:
            return None
        self._saving = None
        if not saving.done(_LOOK_S if may_wait else 0.0):
            self._saving = saving
            self._tell()
            return None
        if self._tell_at_s is None:
            log.info("the offsets that were waiting are stored")
        return self._saving_ends

    def _tell(self) -> None:
        """Some clients and stores wait without a word for a server that is away; an operator should
        know.
        """
        if self._tell_at_s is not None and now_s() > self._tell_at_s:
            self._tell_at_s = None
            log.warning("offsets have been on their way to their store for %.0f s; the term goes on and waits", TELL_AFTER_S)

    def settled(self, ends: Offsets) -> None:
        """``ends`` are in the store."""
        if self.wanted == ends:
            self.wanted, self.outcome = None, True

    def let_go(self) -> None:
        """The batch is not in hand any more: what was wanted of it will not be saved."""
        if self.wanted is not None:
            self.wanted, self._saving, self.outcome = None, None, False

    def place(self, consumer: ConsumerClient, offsets: Offsets) -> None:
        """Begin to place offsets; :meth:`finish_placing` tells when that is done."""
        self._placed = offsets
        self._placing = self._store.place(consumer, self._term, offsets)

    def finish_placing(self) -> Offsets | None:
        """What has been placed, once it is; waits up to 2 ms."""
        placing = self._placing
        if placing is None:
            return None
        self._placing = None
        if not placing.done(_LOOK_S):
            self._placing = placing
            return None
        return self._placed

    def place_now(self, consumer: ConsumerClient, offsets: Offsets, wait_s: float) -> None:
        """Place offsets, and wait for that."""
        if not self._store.place(consumer, self._term, offsets).done(wait_s):
            raise KafkaAway("an offset is not stored yet")

    def forget(self) -> None:
        """The consumer is another now: ask no more about what was under way; what is wanted will be
        saved anew.

        Never done while the consumer lives: what is under way could then be stored after something
        newer.
        """
        self._saving = self._placing = None
