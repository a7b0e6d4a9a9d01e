"""The states of a commit: all orders of what may happen to one, without a store or a thread."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import pytest

from leaderq.kafka.clients.consumer import BatchLost, EffectRefused, KafkaAway, KafkaError
from leaderq.kafka.consuming.commits import TABLE, CommitEvent, CommitState, OffsetCommits
from leaderq.kafka.record import Partition

A = Partition("t", 0)
ANY: Any = None
REFUSED = EffectRefused(KafkaError("too large"))
LENGTH = 5


class Sent:
    def __init__(self, life: Life, ends: Any, *, of_batch: bool) -> None:
        self.life, self.ends, self.of_batch = life, ends, of_batch
        self.answer: bool | Exception = False

    def done(self, wait_s: float) -> bool:
        if self.answer is not False:
            self.life.open.remove(self)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Life:
    """A career, its consumer and a store; each method is something that may happen next."""

    def __init__(self) -> None:
        self.commits = OffsetCommits(self, ANY)
        self.open: list[Sent] = []
        self.stored: list[Any] = []
        self.asked = 0
        self.wanted: Any = None
        self.failure: type[Exception] | None = None
        self.shown: dict[Partition, int] = {}

    def commit(self, _consumer: Any, _term: Any, ends: Any) -> Sent:
        return self._sent(ends, of_batch=True)

    def commit_positions(self, _consumer: Any, _term: Any, ends: Any) -> Sent:
        return self._sent(ends, of_batch=False)

    def _sent(self, ends: Any, *, of_batch: bool) -> Sent:
        assert not self.open, "one thing at a time"
        self.open.append(Sent(self, ends, of_batch=of_batch))
        return self.open[0]

    # ---- what may happen -------------------------------------------------------------------------

    def ask(self) -> None:
        if self.wanted is None:
            self.asked += 1
            self.wanted, self.failure = {A: self.asked}, None
            self.commits.request(self.wanted, in_hand=True)

    def show_positions(self) -> None:
        if not self.commits.is_busy:
            self.shown = {A: -1}
            self.commits.commit_positions(ANY, self.shown)

    def round(self) -> None:
        is_stored = bool(self.open) and self.open[0].answer is True
        if self.commits.is_abandoning:
            assert self.commits.is_abandonment_over() == (not self.commits.is_abandoning)
            self.shown = {} if is_stored else self.shown
            return
        shows = self.commits.state in (CommitState.POSITIONS, CommitState.AFTER_POSITIONS)
        try:
            is_shown = shows and is_stored
            assert self.commits.finish_positions() == (self.shown if is_shown else None)
            self.shown = {} if is_shown else self.shown
            self.commits.start(ANY)
            if (ends := self.commits.finish(may_wait=False)) is not None:
                assert ends == self.wanted == self.stored[-1]
                self.wanted, self.shown = None, {}
        except BatchLost:
            assert self.commits.lost() is (self.wanted is not None)
        except EffectRefused as exc:
            self.commits.refused(exc)
            self.wanted, self.failure = None, EffectRefused
        except KafkaAway:
            pass

    def answered(self) -> None:
        self._answer(True)

    def failed(self) -> None:
        self._answer(KafkaAway("no answer"))

    def lost(self) -> None:
        self._answer(BatchLost("nobody knows"))

    def lost_though_stored(self) -> None:
        self.stored += [sent.ends for sent in self.open if sent.answer is False]
        self.lost()

    def break_(self) -> None:
        """Something else of the store broke, and the effects with it."""
        assert self.commits.lost() is (self.wanted is not None)

    def refused(self) -> None:
        if self.open and self.open[0].of_batch:
            self._answer(REFUSED)

    def _answer(self, answer: bool | Exception) -> None:
        for sent in self.open:
            if sent.answer is False:
                sent.answer = answer
                if answer is True:
                    self.stored.append(sent.ends)

    def abandon(self) -> None:
        if self.commits.state is CommitState.UNKNOWN:
            self.open.clear()  # fenced first
        self.commits.drop()
        if self.wanted is not None:
            self.wanted, self.failure = None, BatchLost

    def replace_consumer(self) -> None:
        self.commits.forget()
        self.open.clear()  # nothing of it can be stored any more

    def load(self) -> None:
        """The store was asked again, and has the ends, or not."""
        if self.commits.state is CommitState.UNKNOWN:
            self.open.clear()  # fenced
            if self.wanted in self.stored:
                self.commits.stored()
                self.wanted = None
            else:
                self.abandon()

    # ---- what must hold --------------------------------------------------------------------------

    def check(self) -> None:
        commits = self.commits
        assert commits.wanted == self.wanted
        assert commits.own == (self.wanted or {}, self.shown)
        assert (None if commits.failure is None else type(commits.failure)) is self.failure
        assert commits.is_busy is bool(self.open or self.wanted is not None)
        assert commits.is_abandoning or commits.is_abandonment_over()

    def end(self) -> None:
        """With a store that answers, all that is asked for comes to its end."""
        for _ in range(4):
            self.load()
            self.round()
            self.answered()
        self.round()
        assert (self.wanted, self.commits.state, self.open) == (None, CommitState.IDLE, [])


WORK = [Life.ask, Life.show_positions, Life.round, Life.abandon, Life.replace_consumer, Life.load]
LOSSES = [Life.failed, Life.lost, Life.lost_though_stored, Life.break_, Life.refused]
ACTS: list[Callable[[Life], None]] = [*WORK, Life.answered, *LOSSES]


@pytest.mark.parametrize("first", ACTS, ids=lambda act: act.__name__)
def test_in_all_orders_one_thing_is_under_way_and_what_was_asked_for_comes_to_its_end(first):
    for acts in product(ACTS, repeat=LENGTH - 2):
        life = Life()
        life.check()
        for act in (Life.ask, first, *acts):
            act(life)
            life.check()
        life.end()


def test_each_state_can_be_reached_and_left():
    assert {state for state, _ in TABLE} == set(CommitState) == set(TABLE.values())
    assert {event for _, event in TABLE} == set(CommitEvent)
