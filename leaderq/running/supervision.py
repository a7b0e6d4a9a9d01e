"""What limits a term from outside its code: budgets, the health check, the cool-off.

*Budgets*: the career thread says what it enters; the supervisor waits until a budget is missed. The
hand-over's begins with the *end of the term*, not with the call of ``handOver``: the unit in hand
is part of it.

*Health*: asked on a thread of its own every T/3 (T: session time-out), to be answered within
another T/3: a health check that hangs is the very illness it should report.

*Cool-off* (pure): fenced is not fatal. A deposed leader stands again after a moment, with jitter,
so that a flapping network does not bring a storm of terms. A career that fails waits longer each
time and, after ``max_failures`` terms in a row, until every other candidate has had its turn; a
term that lasted longer than that does not count as one of the row. After a planned end a candidate
gives way for a moment, while its successor claims; a career that ended its own term cools off once.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from leaderq.base import clock
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
    """``stage`` of ``term`` may take ``budget_s``, until ``until_s`` on leaderq's clock."""

    term: OpenTerm
    stage: str
    budget_s: float
    until_s: float


class Budgets:
    """Holds the one allowance that is being timed, if any; ``changed`` is called when another takes
    its place. Thread-safe, and never waits.
    """

    def __init__(self, changed: Callable[[], object] = lambda: None) -> None:
        self._changed = changed
        self._lock = primitives.Lock()
        self._open: OpenTerm | None = None
        self._running: Allowance | None = None

    def open_term(self, term: OpenTerm) -> None:
        """The code of ``term`` is about to be called."""
        with self._lock:
            self._open, self._running = term, None

    def allow(self, term: OpenTerm, stage: Stage, budget_s: float) -> None:
        """``stage`` may take ``budget_s`` seconds from now.

        Once the hand-over of that term is being timed, only a shorter time for it counts. Ignored
        after the term, because the candidate's thread may report its end late.
        """
        until_s = clock.now_s() + budget_s
        with self._lock:
            running = self._running
            handing_over = running is not None and running.stage == Stage.HANDOVER
            is_shorter = running is None or (stage is Stage.HANDOVER and until_s < running.until_s)
            if term is self._open and (is_shorter or not handing_over):
                self._running = Allowance(term, stage.value, budget_s, until_s)
        self._changed()

    def settle(self) -> None:
        """Nothing is being timed: the stage returned, or has no budget."""
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
        """The allowance that has ended, returned once; ``None`` if none has."""
        with self._lock:
            running = self._running
            if running is None or clock.now_s() < running.until_s:
                return None
            self._running = None
            return running


def watch_health(
    career: object, term: Term, *, interval_s: float, unhealthy: Callable[[], None]
) -> None:
    """Call ``unhealthy`` once if ``career`` says no, raises, or does not answer while ``term`` is
    on.

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
            answers.append(bool(career.healthy()))
        except BaseException:  # a health check that raises says no
            log.exception(
                "healthy() raised, which counts as unhealthy career=%s", type(career).__name__
            )
            answers.append(False)

    asked = primitives.Thread(target=ask, name="leaderq-health-check", daemon=True)
    asked.start()
    asked.join(within_s)
    if not answers:
        log.error(
            "healthy() has not answered career=%s within_s=%.1f", type(career).__name__, within_s
        )
    return bool(answers) and answers[0]


@dataclass(frozen=True, slots=True)
class CoolOff:
    """How many terms in a row have failed, and for how long and why to cool off now."""

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
    ``stand_again_after_s``: the time that a career that resigned asked for. ``policy``: after so
    many ``attempts`` in a row it yields to the others for ``most_s``.
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
