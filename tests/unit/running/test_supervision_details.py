from __future__ import annotations

import math
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from leaderq.career import LeaderCareer
from leaderq.events import Stage
from leaderq.running import supervision
from leaderq.running.supervision import Allowance, Budgets, CoolOff, after_term, watch_health
from leaderq.term import Reason
from leaderq.threads import Retry

TERM: Any = object()
OTHER: Any = object()
WORK = next(stage for stage in Stage if stage is not Stage.HANDOVER)
HAND_OVER = Stage.HANDOVER
OPEN, SETTLE, CLOSE = ("open_term", TERM), ("settle",), ("close_term",)


def allow(stage: Stage, seconds: float, term: Any = TERM) -> tuple[Any, ...]:
    return "allow", term, stage, seconds


@pytest.mark.parametrize(
    ("calls", "timed"),
    [
        ([SETTLE, allow(WORK, 5.0)], None),  # before a term
        ([OPEN, allow(WORK, 5.0, OTHER), allow(HAND_OVER, 1.0, OTHER)], None),
        ([OPEN, allow(WORK, 5.0)], (WORK, 5.0)),
        ([OPEN, allow(WORK, 5.0), allow(HAND_OVER, 1.0, OTHER)], (WORK, 5.0)),
        ([OPEN, allow(WORK, 5.0), SETTLE], None),  # it has returned
        ([OPEN, allow(HAND_OVER, 5.0), SETTLE], (HAND_OVER, 5.0)),
        ([OPEN, allow(WORK, 5.0), CLOSE], None),
        ([OPEN, CLOSE, allow(WORK, 5.0), allow(HAND_OVER, 5.0)], None),  # its code has returned
        # a later stage replaces the one before, but of the hand-over only a shorter time counts
        ([OPEN, allow(WORK, 5.0), allow(WORK, 0.5)], (WORK, 0.5)),
        ([OPEN, allow(WORK, 5.0), allow(WORK, 9.0)], (WORK, 9.0)),
        ([OPEN, allow(HAND_OVER, 5.0), allow(WORK, 1.0)], (HAND_OVER, 5.0)),
        ([OPEN, allow(HAND_OVER, 5.0), allow(WORK, 9.0)], (HAND_OVER, 5.0)),
        ([OPEN, allow(HAND_OVER, 5.0), allow(HAND_OVER, 1.0)], (HAND_OVER, 1.0)),
        ([OPEN, allow(HAND_OVER, 5.0), allow(HAND_OVER, 9.0)], (HAND_OVER, 5.0)),
    ],
)
def test_a_budget_is_missed_at_its_end_and_told_once(at, calls, timed):
    budgets = Budgets()
    for name, *given in calls:
        getattr(budgets, name)(*given)
    if timed is not None:
        stage, seconds = timed
        assert budgets.until_s == 100.0 + seconds
        assert budgets.missed() is None
        at[0] = budgets.until_s
        assert budgets.missed() == Allowance(TERM, stage.value, seconds, at[0])
    assert math.isinf(budgets.until_s)
    assert budgets.missed() is None


def test_whoever_waits_for_a_budget_is_told_of_each(at):
    told: list[float] = []
    budgets = Budgets(lambda: told.append(budgets.until_s))
    budgets.open_term(TERM)
    budgets.allow(TERM, WORK, 5.0)
    budgets.allow(TERM, Stage.HANDOVER, 1.0)
    assert told == [105.0, 101.0]


class Watched(LeaderCareer):
    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def execute(self, term: Any) -> None: ...

    def healthy(self) -> bool:
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


class AtOnce:
    """A service, or a thread, whose work is done when it is started."""

    made: list[AtOnce]

    def __init__(self, *words: Any, **named: Any) -> None:
        self.words, self.named, self.joined = words, named, None
        AtOnce.made.append(self)

    def start(self) -> None:
        work = self.named.get("target") or partial(self.words[1], self)
        work()

    def join(self, within_s: float) -> None:
        self.joined = within_s


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    AtOnce.made = []
    monkeypatch.setattr(supervision, "Service", AtOnce)
    monkeypatch.setattr(supervision.primitives, "Thread", AtOnce)


def watched(career: object, rounds: int) -> int:
    waits = iter([True] * rounds + [False])
    calls: list[float] = []

    def wait(seconds: float) -> bool:
        assert seconds == 2.0
        return next(waits)

    term: Any = SimpleNamespace(wait=wait)
    watch_health(career, term, interval_s=2.0, unhealthy=lambda: calls.append(1))
    return len(calls)


def test_a_career_is_asked_each_interval_while_its_term_is_on():
    career = Watched(True, 1, True, "unasked")
    assert watched(career, 3) == 0
    assert career.answers == ["unasked"]
    threads = [one for one in AtOnce.made if "target" in one.named]
    assert [(one.joined, one.named["daemon"]) for one in threads] == [(2.0, True)] * 3


@pytest.mark.parametrize(
    "answer", [False, None, 0, (yes for yes in [True]), RuntimeError("x"), SystemExit(1)]
)
def test_a_career_that_says_no_or_raises_is_unhealthy_once(answer, caplog):
    career = Watched(True, answer, False)
    assert watched(career, 9) == 1
    assert career.answers == [False]
    assert "has not answered" not in caplog.text


def test_a_career_that_does_not_answer_is_unhealthy(monkeypatch, caplog):
    career = Watched(True)
    assert watched(career, 1) == 0
    assert "has not answered" not in caplog.text
    monkeypatch.setattr(
        AtOnce, "start", lambda self: None if "target" in self.named else self.words[1](self)
    )
    assert watched(career, 9) == 1
    assert "healthy() has not answered career=Watched within_s=2.0" in caplog.text


def test_a_career_that_cannot_be_asked_is_unhealthy(monkeypatch, caplog):
    def start(self: AtOnce) -> None:
        if "target" in self.named:
            raise RuntimeError("can't start new thread")
        self.words[1](self)

    monkeypatch.setattr(AtOnce, "start", start)
    assert watched(Watched(True), 9) == 1
    assert "healthy() cannot be asked career=Watched" in caplog.text


def test_what_has_no_health_check_costs_no_thread():
    class Unwatched(LeaderCareer):
        def execute(self, term: Any) -> None: ...

    strange = SimpleNamespace(_is_watched=True, healthy=lambda: False)
    assert [watched(each, 3) for each in (Unwatched(), object(), strange)] == [0, 0, 0]
    assert AtOnce.made == []


FAILED = (Reason.FAILED, Reason.HEALTH, Reason.BUDGET)


@pytest.mark.parametrize("reason", Reason)
def test_each_end_of_a_term_has_its_cool_off(reason):
    assert CoolOff() == CoolOff(0, 0.0, "")
    policy = Retry(3, 1.0, 30.0)
    after = after_term(CoolOff(1, 0.0, ""), reason, 5.0, policy, chance=0.0)
    if reason in FAILED:
        assert (after.failures, after.seconds) == (2, 2.0)
        third = after_term(after, reason, 5.0, policy, chance=0.0)
        assert (third.failures, third.seconds) == (3, 30.0)
        assert "3 terms in a row" in third.why
        assert after_term(third, reason, 30.0, policy, chance=0.0).failures == 4
        assert after_term(third, reason, 30.1, policy, chance=0.0).failures == 1
    elif reason.deposes:
        assert (after.failures, after.seconds) == (1, 1.0)
        assert "deposed" in after.why
    elif reason in (Reason.RESIGNED, Reason.WITHDRAWN):
        assert after == CoolOff(0, 1.0, "")
        asked = after_term(CoolOff(1), reason, 5.0, policy, stand_again_after_s=0.5)
        assert asked == CoolOff(0, 0.5, "")
        at_once = after_term(CoolOff(1), reason, 5.0, policy, stand_again_after_s=0.0)
        assert at_once == CoolOff(0, 0.1, "")
    else:
        assert after == CoolOff(0, 0.1, "")
