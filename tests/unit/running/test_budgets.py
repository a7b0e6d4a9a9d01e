"""Which stage is timed, and what is told when it takes too long."""

from __future__ import annotations

import threading

import pytest

from leaderq.clock import now_s
from leaderq.events import Stage
from leaderq.running.supervision import Budgets
from leaderq.term import OpenTerm


@pytest.fixture
def term() -> OpenTerm:
    return OpenTerm(
        number=1,
        id="n",
        career="c",
        candidate="a",
        deadline=now_s() + 60,
        write=lambda _t, ops: list(ops),
    )


@pytest.fixture
def budgets(term: OpenTerm) -> Budgets:
    made = Budgets()
    made.open_term(term)
    return made


def nothing_missed(budgets: Budgets) -> bool:
    budgets.finish()
    return budgets.next_missed() is None


def test_a_missed_budget_is_told_once(budgets, term):
    budgets.allow(term, Stage.INAUGURATION, 0.0)
    missed = budgets.next_missed()
    assert missed is not None
    assert (missed.term, missed.stage) == (term, "inauguration")
    assert nothing_missed(budgets)


def test_a_stage_that_returned_is_not_missed(budgets, term):
    budgets.allow(term, Stage.INAUGURATION, 0.0)
    budgets.settle()
    assert nothing_missed(budgets)


def test_the_hand_over_is_timed_from_the_end_of_the_term_and_not_again(budgets, term):
    budgets.allow(term, Stage.HANDOVER, 0.0)
    budgets.allow(term, Stage.HANDOVER, 60.0)
    budgets.settle()
    missed = budgets.next_missed()
    assert missed is not None
    assert missed.budget_s == 0.0


def test_a_leader_that_is_deposed_while_it_hands_over_as_planned_has_less_time(budgets, term):
    budgets.allow(term, Stage.HANDOVER, 60.0)
    budgets.allow(term, Stage.HANDOVER, 0.0)
    missed = budgets.next_missed()
    assert missed is not None
    assert missed.budget_s == 0.0


def test_an_end_that_is_announced_after_the_code_has_returned_times_nothing(budgets, term):
    """Found by the demo: a thawed leader handed over at once, and its process was ended ten seconds
    later for not having.
    """
    budgets.close_term()
    budgets.allow(term, Stage.HANDOVER, 0.0)
    assert nothing_missed(budgets)


def test_waiting_ends_when_there_will_be_no_more(budgets):
    told: list[object] = []
    waiter = threading.Thread(target=lambda: told.append(budgets.next_missed()))
    waiter.start()
    budgets.finish()
    waiter.join(10)
    assert told == [None]
