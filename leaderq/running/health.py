"""Asks a leading career whether it should go on leading.

The question runs on a thread of its own, every third of the session time-out, and must be answered within another third: a
health check that hangs is the very illness it should report.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from leaderq.career import LeaderCareer
from leaderq.term import Term

log = logging.getLogger(__name__)


def is_asked(career: object) -> bool:
    """Whether ``career`` has a health check of its own; the default one costs no thread."""
    return isinstance(career, LeaderCareer) and type(career).healthy is not LeaderCareer.healthy


class HealthWatch:
    """Calls ``unhealthy`` once if ``career`` says no, raises, or does not answer while ``term`` is on."""

    def __init__(self, career: LeaderCareer, term: Term, *, interval_s: float, unhealthy: Callable[[], None]) -> None:
        self._career = career
        self._term = term
        self._interval_s = interval_s
        self._unhealthy = unhealthy

    def start(self) -> None:
        """Begin asking; ends by itself with the term."""
        threading.Thread(target=self._watch, name="leaderq-health", daemon=True).start()

    def _watch(self) -> None:
        while self._term.wait(self._interval_s):
            if not self._answer():
                self._unhealthy()
                return

    def _answer(self) -> bool:
        answers: list[bool] = []
        asked = threading.Thread(target=lambda: answers.append(self._ask()), name="leaderq-health-check", daemon=True)
        asked.start()
        asked.join(self._interval_s)
        if not answers:
            log.error("healthy() of %s has not answered within %.1f s", type(self._career).__name__, self._interval_s)
        return bool(answers) and answers[0]

    def _ask(self) -> bool:
        try:
            return bool(self._career.healthy())
        except Exception:  # a health check that raises says no
            log.exception("healthy() of %s raised; it counts as unhealthy", type(self._career).__name__)
            return False
