"""A term as its career sees it."""

from __future__ import annotations

import threading

import pytest
from terms import open_term

from leaderq.term import Reason


def test_wait_sleeps_through_a_quiet_term_and_wakes_at_its_end():
    term = open_term()
    assert term.wait(0.001)
    ender = threading.Timer(0.01, lambda: term.wind_up(Reason.HEALTH))
    ender.start()
    assert not term.wait(60.0)
    ender.join()


def test_wait_ends_with_the_lease_even_if_nobody_wakes_it():
    term = open_term(lasts_s=0.01)
    waiting = threading.Thread(target=term.wait, args=(600.0,), daemon=True)
    waiting.start()
    waiting.join(20.0)
    assert not waiting.is_alive()
    assert term.reason is Reason.LEASE


def test_its_repr_says_how_it_stands():
    term = open_term()
    assert repr(term) == "<Term 1 of 'c' by 'a', on>"
    term.pause(True)
    assert "paused" in repr(term)
    term.wind_up(Reason.TRANSFER)
    assert "ending" in repr(term)


@pytest.mark.parametrize("reason", [Reason.STEP_DOWN, Reason.FENCED])
def test_who_has_finished_has_finished_whatever_ends_the_term(reason):
    before, after = open_term(), open_term()
    before.finish()
    before.wind_up(reason)
    after.wind_up(reason)
    after.finish()
    assert before.is_finished
    assert after.is_finished
    assert after.reason is reason
