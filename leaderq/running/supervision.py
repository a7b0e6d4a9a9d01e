"""What limits a term from outside its code: budgets, the health check, the cool-off.

*Budgets*: the career thread says which stage it enters; the supervisor waits until a budget is
missed. The budget of the hand-over begins with the *end of the term*, not with the call of
``handOver``, so it includes the unit in hand.

*Health*: ``healthy()`` is called on a thread of its own every T/3 (T: session time-out), and must
return within another T/3: a health check that hangs counts as unhealthy.

*Cool-off* (pure): a deposed leader may lead again. It stands again after a moment, with jitter, so
that an unsteady network does not cause very many terms. A career that fails waits longer each time
and, after ``max_failures`` terms in a row, so long that every other candidate has had its turn; a
term that lasted longer than this wait starts the count again. After a planned end a candidate gives
way for a moment, while its successor claims; a career that ended its own term cools off once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from leaderq.base import clock
from leaderq.base.arguments import require_finished
from leaderq.career import Career
from leaderq.events import Stage
from leaderq.term import OpenTerm, Reason, Term
from leaderq.threads import primitives
from leaderq.threads.retry import Retry
from leaderq.threads.service import Service

log = logging.getLogger(__name__)

GIVE_WAY_S = 0.1
_FAILURES = frozenset({Reason.FAILED, Reason.HEALTH, Reason.BUDGET})


@dataclass(frozen=True, slots=True)
class Allowance:
    """Says that ``stage`` of ``term`` may take ``budget_s`` seconds, until ``until_s`` on leaderq's
    clock. ``None`` for both: ``prepare`` or ``retire``, which no term includes.
    """

    term: OpenTerm | None
    stage: str | None
    budget_s: float
    until_s: float


class Budgets:
    """Holds the one allowance that is being timed, if there is one; ``changed()`` is called when
    another one takes its place. Thread-safe, and never waits.
    """

    def __init__(self, changed: Callable[[], object] = lambda: None) -> None:
        self._changed = changed
        self._lock = primitives.Lock()
        self._open: OpenTerm | None = None
        self._running: Allowance | None = None

    def open_term(self, term: OpenTerm) -> None:
        """Begin ``term``, whose code is about to be called; nothing is being timed yet."""
        with self._lock:
            self._open, self._running = term, None

    def allow(self, term: OpenTerm | None, stage: Stage | None, budget_s: float) -> None:
        """Allow ``stage`` to take ``budget_s`` seconds from now; ``None``, for ``prepare`` and
        ``retire``, counts outside of terms only.

        Once the hand-over of ``term`` is being timed, only a shorter time for the hand-over counts.
        After the term this is ignored, because the candidate's thread may report the end late.
        """
        until_s = clock.now_s() + budget_s
        with self._lock:
            running = self._running
            handing_over = running is not None and running.stage == Stage.HANDOVER
            is_shorter = running is None or (stage is Stage.HANDOVER and until_s < running.until_s)
            if term is self._open and (is_shorter or not handing_over):
                name = None if stage is None else stage.value
                self._running = Allowance(term, name, budget_s, until_s)
        self._changed()

    def settle(self) -> None:
        """Stop timing the stage, because it has returned. A hand-over that is being timed
        goes on.
        """
        with self._lock:
            if self._running is not None and self._running.stage != Stage.HANDOVER:
                self._running = None

    def close_term(self) -> None:
        with self._lock:
            self._open = self._running = None

    @property
    def until_s(self) -> float:
        """When the present allowance ends; infinite without one."""
        running = self._running
        return math.inf if running is None else running.until_s

    def missed(self) -> Allowance | None:
        """The allowance whose time is over, returned only once; ``None`` if there is none."""
        with self._lock:
            if clock.now_s() < self.until_s:
                return None
            missed, self._running = self._running, None
            return missed


def watch_health(
    career: object, term: Term, *, interval_s: float, unhealthy: Callable[[], None]
) -> None:
    """Call ``unhealthy`` once if ``career.healthy()`` returns ``False``, raises, or does not
    return, while ``term`` is on. It is asked every ``interval_s`` seconds.

    A career without a health check costs no thread.
    """
    if not isinstance(career, Career) or not career._is_watched:
        return

    def watch(_service: Service) -> None:
        while term.wait(interval_s):
            if not _is_healthy(career, interval_s):
                unhealthy()
                return

    Service("leaderq-health", watch).start()


def _is_healthy(career: Career, within_s: float) -> bool:
    answers: list[bool] = []

    def ask() -> None:
        try:
            answer: object = career.healthy()
            require_finished(answer, "healthy")
            answers.append(bool(answer))
        except BaseException:  # a health check that raises says no
            log.exception(
                "healthy() raised, which counts as unhealthy career=%s", type(career).__name__
            )
            answers.append(False)

    asked = primitives.Thread(target=ask, name="leaderq-health-check", daemon=True)
    try:
        asked.start()
        asked.join(within_s)
    except RuntimeError:  # the system has no thread left
        log.exception("healthy() cannot be asked career=%s", type(career).__name__)
    if not answers:
        log.error(
            "healthy() has not answered career=%s within_s=%.1f", type(career).__name__, within_s
        )
    return bool(answers) and answers[0]


@dataclass(frozen=True, slots=True)
class CoolOff:
    """How many terms in a row have failed; and for how many seconds, and why, the candidate cools
    off.
    """

    failures: int = 0
    seconds: float = 0.0
    why: str = ""


def after_term(
    record: CoolOff,
    reason: Reason,
    lasted_s: float,
    policy: Retry,
    *,
    stand_again_after_s: float | None = None,
    chance: float | None = None,
) -> CoolOff:
    """The record after a term that ended for ``reason`` after ``lasted_s`` seconds;
    ``stand_again_after_s``: the wait that a career asked for when it resigned. ``policy``: after
    ``attempts`` failures in a row the candidate yields to the others for ``most_s`` seconds.
    """
    if reason in _FAILURES:
        failures = 1 if lasted_s > policy.most_s else record.failures + 1
        if policy.is_exhausted(failures):
            why = (
                f"{failures} terms in a row have failed, the last because {reason.sentence}; it"
                " yields to the others"
            )
            return CoolOff(failures, policy.most_s, why)
        return CoolOff(
            failures,
            policy.delay_s(failures, chance),
            f"the last term ended because {reason.sentence}",
        )
    if reason.deposes:
        return replace(
            record, seconds=policy.delay_s(1, chance), why=f"it was deposed: {reason.sentence}"
        )
    # by itself: it may have nothing to do next time either
    if reason in (Reason.RESIGNED, Reason.WITHDRAWN):
        asked_s = policy.first_s if stand_again_after_s is None else stand_again_after_s
        return CoolOff(seconds=max(GIVE_WAY_S, asked_s))
    return CoolOff(seconds=GIVE_WAY_S)
