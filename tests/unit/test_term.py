"""A term as its career sees it."""

from __future__ import annotations

import threading

import pytest

from leaderq.clock import now_s
from leaderq.errors import Deposed
from leaderq.term import OpenTerm, Reason


def a_term(*, lasts_s: float = 60.0) -> OpenTerm:
    return OpenTerm(
        number=7,
        id="_c_x-latch-0000000001",
        career="billing",
        candidate="a",
        deadline=now_s() + lasts_s,
        write=lambda _term, ops: list(ops),
    )


def test_a_term_that_is_on_passes_its_check():
    term = a_term()
    term.check()
    assert term.write([]) == []
    assert 0 < term.remaining_s() <= 60.0
    assert term.reason is None


def test_a_passed_deadline_deposes_without_anybody_saying_so():
    term = a_term(lasts_s=-0.001)
    with pytest.raises(Deposed) as deposed:
        term.check()
    assert (deposed.value.term, deposed.value.reason) == (7, Reason.LEASE)
    assert term.ending.is_set()
    assert term.remaining_s() == 0.0


def test_a_deadline_that_has_passed_cannot_be_prolonged():
    term = a_term(lasts_s=-0.001)
    term.prolong(now_s() + 60)
    with pytest.raises(Deposed):
        term.check()


def test_a_deadline_never_moves_back():
    term = a_term()
    before = term.deadline
    term.prolong(before - 10)
    assert term.deadline == before


def test_a_deadline_is_only_ever_shortened_by_a_shorter_time_out():
    term = a_term()
    before = term.deadline
    term.shorten(before + 10)
    assert term.deadline == before
    term.shorten(before - 10)
    assert term.deadline == before - 10


def test_a_planned_end_still_lets_the_unit_in_hand_finish():
    term = a_term()
    term.wind_up(Reason.TRANSFER)
    assert term.ending.is_set()
    term.check()
    assert term.write([]) == []


def test_being_deposed_during_a_planned_end_is_what_hand_over_is_told():
    term = a_term()
    term.wind_up(Reason.TRANSFER)
    term.wind_up(Reason.SESSION)
    assert term.reason is Reason.SESSION
    with pytest.raises(Deposed, match="session is over"):
        term.check()


def test_the_first_reason_stands():
    term = a_term()
    term.wind_up(Reason.NODE_DELETED)
    term.wind_up(Reason.LEASE)
    term.wind_up(Reason.WITHDRAWN)
    assert term.reason is Reason.NODE_DELETED


def test_a_closed_term_refuses_everything():
    term = a_term()
    term.wind_up(Reason.STEP_DOWN)
    term.close()
    with pytest.raises(Deposed):
        term.write([])
    assert term.reason is Reason.STEP_DOWN


def test_wait_sleeps_through_a_quiet_term_and_wakes_at_its_end():
    term = a_term()
    assert term.wait(0.001)
    ender = threading.Timer(0.01, lambda: term.wind_up(Reason.HEALTH))
    ender.start()
    assert not term.wait(60.0)
    ender.join()


def test_wait_ends_with_the_lease_even_if_nobody_wakes_it():
    term = a_term(lasts_s=0.01)
    waiting = threading.Thread(target=term.wait, args=(600.0,), daemon=True)
    waiting.start()
    waiting.join(20.0)
    assert not waiting.is_alive()
    assert term.reason is Reason.LEASE


def test_its_repr_says_how_it_stands():
    term = a_term()
    assert repr(term) == "<Term 7 of 'billing' by 'a', on>"
    term.pause(True)
    assert "paused" in repr(term)
    term.wind_up(Reason.TRANSFER)
    assert "ending" in repr(term)


def test_a_career_resigns_once_and_whoever_holds_the_term_is_told():
    told = []
    term = OpenTerm(
        number=7,
        id="x",
        career="billing",
        candidate="a",
        deadline=now_s() + 60,
        write=lambda _term, ops: [*ops],
        tell_end=lambda *said: told.append(said),
    )
    term.resign(stand_again_after_s=5)
    term.resign(stand_again_after_s=9)
    assert told == [(term, Reason.RESIGNED)]
    assert (term.reason, term.stand_again_after_s, term.is_finished) == (Reason.RESIGNED, 5, False)
    term.check()  # planned: leadership is held until the code has returned
    assert not term.wait(60)


@pytest.mark.parametrize("reason", [Reason.STEP_DOWN, Reason.FENCED])
def test_who_has_finished_has_finished_whatever_ends_the_term(reason):
    before, after = a_term(), a_term()
    before.finish()
    before.wind_up(reason)
    after.wind_up(reason)
    after.finish()
    assert before.is_finished
    assert after.is_finished
    assert after.reason is reason
