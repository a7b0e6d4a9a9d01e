"""How long each stage of a term may take, and noticing when it took longer.

The career thread says what it enters; the supervisor waits here until a budget is missed or the work is finished. The budget of
the hand-over begins with the *end of the term*, not with the call of ``handOver``: the unit in hand is part of it.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from leaderq.clock import now_s
from leaderq.events import Stage
from leaderq.term import OpenTerm


@dataclass(frozen=True, slots=True)
class Allowance:
    """``stage`` of ``term`` may go on until ``until_s``, on :func:`leaderq.clock.now_s`; ``budget_s`` is its length."""

    term: OpenTerm
    stage: str
    budget_s: float
    until_s: float


class Budgets:
    """The one allowance that runs at a time. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._open: OpenTerm | None = None
        self._running: Allowance | None = None
        self._finished = False

    def open_term(self, term: OpenTerm) -> None:
        """The code of ``term`` is about to be called."""
        with self._changed:
            self._open, self._running = term, None

    def allow(self, term: OpenTerm, stage: Stage, budget_s: float) -> None:
        """``stage`` may take ``budget_s`` seconds from now; ignored once the hand-over of that term is being timed, and after it.

        After it: a thawed leader may have handed over before its candidate's thread comes to say that the term is ending.
        """
        with self._changed:
            handing_over = self._running is not None and self._running.stage == Stage.HANDOVER
            if term is self._open and not handing_over:
                self._running = Allowance(term, stage.value, budget_s, now_s() + budget_s)
                self._changed.notify_all()

    def settle(self) -> None:
        """Nothing is being timed: the stage returned, or has no budget."""
        with self._changed:
            if self._running is not None and self._running.stage != Stage.HANDOVER:
                self._running = None

    def close_term(self) -> None:
        """The code of the term has returned."""
        with self._changed:
            self._open = self._running = None

    def finish(self) -> None:
        """Let :meth:`next_missed` return ``None``: there will be no more."""
        with self._changed:
            self._finished = True
            self._changed.notify_all()

    def next_missed(self) -> Allowance | None:
        """Wait for a budget to be missed; each is given once. ``None`` after :meth:`finish`."""
        with self._changed:
            while not self._finished:
                running = self._running
                if running is not None and now_s() >= running.until_s:
                    self._running = None
                    return running
                self._changed.wait(None if running is None else max(0.0, running.until_s - now_s()))
            return None
