from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from math import nan
from typing import Any

import pytest
from terms import is_on, open_term

from leaderq import testing
from leaderq.async_term import AsyncTerm
from leaderq.errors import ConfigurationError, Deposed, WouldDeadlock
from leaderq.term import EndingTerm, OpenTerm, Reason

pytestmark = pytest.mark.usefixtures("at")


def a_term(deadline: float = 110.0, **options: Any) -> OpenTerm:
    options = {"id": "z", "write": lambda term, ops: [term.number, *ops], **options}
    return open_term(7, deadline=deadline, **options)


def test_a_term_says_who_leads_what_and_whether_it_is_paused():
    term = a_term(unclean=True)
    assert (term.number, term.id, term.career, term.candidate) == (7, "z", "c", "a")
    assert (term.unclean, a_term().unclean) == (True, False)
    assert (term.paused, term.reason, term.is_finished) == (False, None, False)
    assert term.stand_again_after_s is None
    assert term.write(iter(["x"])) == [7, "x"]
    for is_paused in (True, False):
        term.pause(is_paused)
        assert term.paused is is_paused


def test_a_term_is_over_at_its_deadline_and_not_before(at):
    term = a_term()
    at[0] = 109.99
    assert is_on(term)
    assert term.remaining_s() == pytest.approx(0.01)
    at[0] = 110.0
    assert term.remaining_s() == 0.0
    with pytest.raises(Deposed) as deposed:
        term.check()
    assert (deposed.value.term, deposed.value.reason) == (7, Reason.LEASE)
    assert term.ending.is_set()


def test_a_term_that_was_believed_over_stays_over(at):
    term = a_term()
    at[0] = 110.0
    assert not is_on(term)
    at[0] = 100.0
    term.prolong(500.0)
    assert (is_on(term), term.remaining_s(), term.deadline) == (False, 0.0, 110.0)


def test_a_deadline_is_prolonged_until_it_has_passed_and_shortened_at_once(at):
    term = a_term()
    term.prolong(120.0)
    term.prolong(115.0)
    assert term.deadline == 120.0
    at[0] = 120.0
    term.prolong(130.0)
    assert term.deadline == 120.0
    term = a_term()
    term.shorten(105.0)
    term.shorten(108.0)
    assert term.deadline == 105.0


def test_a_wait_ends_at_the_deadline_with_the_term_over(at, monkeypatch):
    term, waited = a_term(), []

    def wait(seconds: float) -> bool:
        waited.append(seconds)
        at[0] += seconds
        return False

    monkeypatch.setattr(term.ending, "wait", wait)
    assert term.wait(4.0)
    assert term.wait(0.5)
    assert (waited, at[0]) == ([4.0, 0.5], 104.5)
    assert term.wait(0.0)
    assert not term.wait(50.0)
    assert (waited, at[0]) == ([4.0, 0.5, 5.5], 110.0)
    assert (term.reason, is_on(term)) == (Reason.LEASE, False)


@pytest.mark.parametrize("seconds", [-0.1, float("inf"), float("nan"), "5"])
def test_a_career_cannot_stand_again_at_a_time_that_is_none(seconds):
    term = a_term()
    with pytest.raises(ValueError, match="stand_again_after_s"):
        term.resign(stand_again_after_s=seconds)
    assert term.reason is None


@pytest.mark.parametrize("seconds", [None, 0, 0.5, 3.0])
def test_a_career_that_resigns_says_when_it_stands_again(seconds):
    ends: list[Any] = []
    term = a_term(tell_end=lambda *end: ends.append(end))
    term.resign(stand_again_after_s=seconds)
    term.resign(stand_again_after_s=9.0)
    assert term.stand_again_after_s == seconds
    assert (term.reason, term.ending.is_set(), term.is_finished) == (Reason.RESIGNED, True, False)
    assert ends == [(term, Reason.RESIGNED)]


def test_a_career_that_is_finished_is_so_however_its_term_ends(at):
    term = a_term()
    term.finish()
    assert (term.is_finished, term.reason, is_on(term)) == (True, Reason.FINISHED, True)
    term.close()
    assert (term.reason, is_on(term)) == (Reason.FINISHED, False)
    with pytest.raises(Deposed):
        term.write([])


def test_what_is_over_does_not_begin_to_end(at):
    ends: list[Any] = []
    closed = a_term(tell_end=lambda *end: ends.append(end))
    closed.close()
    closed.resign()
    assert (closed.reason, ends) == (Reason.WITHDRAWN, [])


@pytest.mark.parametrize("reason", Reason)
def test_a_reason_that_deposes_ends_a_term_at_once_and_any_other_lets_it_finish(at, reason):
    term = a_term()
    term.wind_up(reason)
    assert (term.reason, term.ending.is_set()) == (reason, True)
    assert is_on(term) is not reason.deposes
    assert term.reason is reason


def test_the_first_reason_counts_until_the_term_is_lost(at):
    term = a_term()
    term.wind_up(Reason.WITHDRAWN)
    term.wind_up(Reason.RESIGNED)
    assert term.reason is Reason.WITHDRAWN
    term.wind_up(Reason.FENCED)
    assert term.reason is Reason.FENCED
    term.wind_up(Reason.SESSION)
    assert term.reason is Reason.FENCED
    with pytest.raises(Deposed, match="a newer leader has fenced it") as deposed:
        term.write([])
    assert (deposed.value.term, deposed.value.reason) == (7, Reason.FENCED)


@pytest.mark.parametrize(
    "ends",
    [
        lambda term: term.resign(),
        lambda term: term.finish(),
        lambda term: term.close(),
        lambda term: term.wind_up(Reason.WITHDRAWN),
        lambda term: term.wind_up(Reason.FENCED),
    ],
)
def test_who_waits_for_the_end_is_called_when_it_begins_and_not_by_each_look(
    at: list[float], ends: Callable[[OpenTerm], None]
) -> None:
    term, called = a_term(), list[str]()
    term._call_at_end(lambda: called.append("first"))
    forget = term._call_at_end(lambda: called.append("second"))
    term._call_at_end(lambda: called.append("third"))
    forget()
    assert called == []
    ends(term)
    assert called == ["first", "third"]
    ends(term)
    assert called == ["first", "third"]
    times = 1 if not is_on(term) else 2  # then the lease ends, too
    at[0] = 110.0
    for _ in range(2):
        assert not is_on(term)
    assert called == ["first", "third"] * times
    term._call_at_end(lambda: called.append("late"))
    assert called[-1] == "late"


def test_a_wait_would_stop_an_event_loop_unless_it_takes_no_time() -> None:
    term = a_term()
    term._passing_s = lambda seconds: seconds - 0.5  # type: ignore[method-assign]

    async def waits() -> None:
        assert term.wait(0.5)
        term.resign()
        with pytest.raises(WouldDeadlock, match="AsyncTerm"):
            term.wait(1.0)

    asyncio.run(waits())


def test_an_ending_term_always_has_a_reason():
    reason = EndingTerm.reason.fget
    term = a_term()
    assert reason(term) is Reason.WITHDRAWN
    term.resign()
    assert reason(term) is Reason.RESIGNED


def test_who_keeps_the_deadline_is_told_of_each_change_and_of_the_end():
    term, told = a_term(), []
    term.tell_changes(lambda: told.append((term.remaining_s(), term.ending.is_set())))
    term.prolong(120.0)
    term.shorten(105.0)
    term.wind_up(Reason.STEP_DOWN)
    assert told == [(20.0, False), (5.0, False), (5.0, True)]


@pytest.mark.parametrize("term", [a_term(), testing.term()], ids=["real", "of the kit"])
@pytest.mark.parametrize("odd", [nan, "5"])
def test_a_wait_of_no_number_of_seconds_is_refused_and_not_over_at_once(term, odd):
    for wait in (lambda: term.wait(odd), lambda: asyncio.run(AsyncTerm(term).wait(odd))):
        with pytest.raises(ConfigurationError, match=f"seconds={odd!r}: give a number"):
            wait()


def test_wait_sleeps_through_a_quiet_term_and_wakes_at_its_end(monkeypatch):
    monkeypatch.undo()  # the clock runs
    term = open_term()
    assert term.wait(0.001)
    ender = threading.Timer(0.01, lambda: term.wind_up(Reason.HEALTH))
    ender.start()
    assert not term.wait(60.0)
    ender.join()
