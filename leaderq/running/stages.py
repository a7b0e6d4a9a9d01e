"""Serves one term: calls the user's code, stage by stage, on the career thread.

``inaugurate``, then ``execute`` again and again while the term is on and not paused, then always
``handOver``. What they raise never leaves this module: it is published, and the term counts as
failed, except for :class:`~leaderq.errors.Deposed`. Once the lease is over by the clock, no stage
except ``handOver`` begins: after a freeze the career thread may run before the candidate's thread.

A unit of an ``atomic`` career may be abandoned: :class:`UnitAbandoned`, a ``BaseException``, is
raised inside the career's thread, between two bytecodes. A call that blocks in C (a long query, a
``time.sleep``) returns first; ``term.wait`` returns at once. Entering, leaving and abandoning a
unit share a lock. Leaving takes back an exception that has not arrived yet, so it never strikes the
code after the unit.

If the user's code forks and the child comes back here, the child ends.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from functools import partial
from typing import TypeVar, cast

from leaderq.base import host
from leaderq.base.exits import ExitCode
from leaderq.career import Career, ILeaderCareer, perform
from leaderq.errors import CareerFailed, Deposed, UnitAbandoned
from leaderq.events import CareerError, EventBus, Stage, StageBegan, WorkRefused
from leaderq.observability.health import TermState
from leaderq.running.supervision import Budgets
from leaderq.schedules.timetable import Timetable
from leaderq.term import EndingTerm, OpenTerm, Reason, Term
from leaderq.threads import primitives

log = logging.getLogger(__name__)
T = TypeVar("T")

_PAUSED_LOOK_S = 0.02
_UNREAD_LOOK_S = 0.001


class StageRunner:
    """Serves one term of ``career``.

    ``tell_stage(stage)`` publishes a stage to observers. ``step_down()`` ends the term because the
    career failed. ``is_heard_out()`` tells whether everything that ZooKeeper has sent was read; no
    unit begins before that, because a host that was stopped together with its clocks learns only
    from ZooKeeper what has happened. Not thread-safe, except for :meth:`abandon`.
    """

    def __init__(
        self,
        career: ILeaderCareer,
        term: OpenTerm,
        *,
        budgets: Budgets,
        inaugurate_budget_s: float,
        settle_s: float,
        events: EventBus,
        tell_stage: Callable[[Stage], None],
        step_down: Callable[[], None],
        is_heard_out: Callable[[], bool],
        timetable: Timetable | None = None,
    ) -> None:
        self._career = career
        self._term = term
        self._who = term.career, term.candidate, term.number
        self._budgets = budgets
        self._inaugurate_budget_s = inaugurate_budget_s
        self._settle_s = settle_s if term.unclean else 0.0
        self._events = events
        self._tell_stage = tell_stage
        self._step_down = step_down
        self._is_heard_out = is_heard_out
        self._timetable = timetable
        self._unit = AbandonableUnit()
        self._pid = host.pid()
        self._perform: Callable[..., object] = getattr(career, "_perform", perform)
        self._error: CareerFailed | None = None
        self.units = 0
        """How many units of work have returned; may be set before the first."""
        self._stage: Stage | None = None

    def serve(self) -> CareerFailed | None:
        """Serve the term to its end; return the first error of the career, or ``None``."""
        if self._settle_s:
            # Resources that cannot compare term numbers get time to forget the leader that
            # vanished.
            self._term.wait(self._settle_s)
        if self._inaugurate():
            self._execute()
        self._enter(Stage.HANDOVER)
        self._call(Stage.HANDOVER, self._done(Stage.HANDOVER, self._hand_over))
        if isinstance(self._career, Career):
            self._call(Stage.HANDOVER, self._career._finish)
        return self._error

    def _hand_over(self, term: Term) -> object:
        hand_over: Callable[[EndingTerm], object] = self._career.handOver
        return hand_over(cast("EndingTerm", term))  # it has a reason by now

    def look(self) -> TermState:
        """Return the state of the term now. Any thread may call it."""
        return TermState(
            number=self._term.number,
            stage=self._stage,
            lease_s=self._term.remaining_s(),
            paused=self._term.paused,
            ending=self._term.ending.is_set(),
        )

    def abandon(self) -> None:
        """Abandon the unit in hand, if the career is atomic. Any thread may call it.

        The unit of an async career is cancelled by the career thread, which waits for it.
        """
        career = self._career
        if getattr(career, "atomic", False) and not getattr(career, "_is_async", False):
            self._unit.abandon()

    def _inaugurate(self) -> bool:
        if self._term.ending.is_set():
            return False
        self._budgets.allow(self._term, Stage.INAUGURATION, self._inaugurate_budget_s)
        self._say(Stage.INAUGURATION)
        if isinstance(self._career, Career) and not self._call(
            Stage.INAUGURATION, self._career._begin
        ):
            return False
        inaugurated = self._done(Stage.INAUGURATION, self._career.inaugurate)
        done = self._call(Stage.INAUGURATION, inaugurated)
        self._budgets.settle()
        return done

    def _execute(self) -> None:
        self._enter(Stage.EXECUTION)
        unit = self._done(Stage.EXECUTION, self._career.execute)
        if self._timetable is not None:
            unit = partial(self._timed, unit)
        while not self._term.ending.is_set() and self._error is None:
            if self._term.paused:
                self._term.wait(_PAUSED_LOOK_S)
            elif not self._is_heard_out():
                self._term.wait(_UNREAD_LOOK_S)
            else:
                self._unit.run(lambda: self._call(Stage.EXECUTION, unit))
                self.units += 1

    def _timed(self, unit: Callable[[OpenTerm], object], term: OpenTerm) -> None:
        """Do one unit of a career with schedules: a tick that is due, or a unit of its own
        ``execute``.
        """
        timetable = self._timetable
        if timetable is not None and timetable.turn(
            term, lambda work: self._done(Stage.EXECUTION, work)(term)
        ):
            return
        if timetable is not None and timetable.is_all:
            timetable.wait(term)
        else:
            unit(term)

    def _done(
        self, stage: Stage, code: Callable[[OpenTerm], object]
    ) -> Callable[[OpenTerm], object]:
        """Return a function that calls the user's method ``code`` and returns when its work is
        done.
        """
        return lambda term: self._perform(
            code,
            term,
            stage=stage,
            until_s=lambda: self._budgets.until_s,
            is_heard_out=self._is_heard_out,
        )

    def _call(self, stage: Stage, code: Callable[[OpenTerm], object]) -> bool:
        """Call the user's code; return ``False`` if no unit may begin after it."""
        if stage is not Stage.HANDOVER and not self._term.wait(0):  # it looks at the clock
            return False
        try:
            called_here(lambda: code(self._term), self._pid)
        except Deposed as exc:
            reason = getattr(exc, "reason", None)  # a subclass of the user's may have none
            reason = reason if isinstance(reason, Reason) else Reason.FENCED
            self._term.wind_up(reason)
            self._events.publish(WorkRefused(*self._who, stage, reason))
            return False
        except UnitAbandoned:
            if stage is not Stage.EXECUTION:
                return False  # coroutines that were cancelled in time
            raise
        except BaseException as exc:  # noqa: BLE001  (published, and the term ends)
            if self._error is None:
                self._error = CareerFailed(self._term.career, stage.value, exc)
                self._error.__cause__ = exc
            self._events.publish(CareerError(*self._who, stage.value, exc))
            self._term.wind_up(Reason.FAILED)  # at once, so that handOver is told why
            self._step_down()
            return False
        return True

    def _enter(self, stage: Stage) -> None:
        self._tell_stage(stage)
        self._say(stage)

    def _say(self, stage: Stage) -> None:
        self._stage = stage
        self._events.publish(StageBegan(*self._who, stage))


def called_here(code: Callable[[], T], pid: int) -> T:
    """Return what the user's ``code()`` returns in the process ``pid``. A child that it has forked
    ends here when it comes back: it has no part in the term, and would do the next units beside its
    parent.
    """
    status: object = ExitCode.FAILED
    try:
        return code()
    except SystemExit as exc:
        status = exc.code or ExitCode.OK
        raise
    finally:
        if host.has_forked_from(pid):
            log.error(
                "a forked child came back from the code of a career, it ends pid=%d", host.pid()
            )
            os._exit(status if isinstance(status, int) else ExitCode.FAILED)


class AbandonableUnit:
    """Runs one unit at a time. Another thread may abandon the unit; then no other unit begins."""

    def __init__(self) -> None:
        self._lock = primitives.Lock()
        self._thread: int | None = None
        self._abandoned = False

    def run(self, unit: Callable[[], object]) -> bool:
        """Call ``unit``; return ``False`` if it was abandoned."""
        try:
            return self._run(unit)
        except UnitAbandoned:
            # raised between the unit's end and the lock; there is never a second one
            self._leave()
            return False

    def abandon(self) -> None:
        """Raise :class:`UnitAbandoned` in the unit that runs, if there is one; let no other unit
        begin.
        """
        with self._lock:
            self._abandoned = True
            if self._thread is not None:
                primitives.raise_in(self._thread, UnitAbandoned)
                # once is enough: the unit's clean-up must not be interrupted again
                self._thread = None

    def _run(self, unit: Callable[[], object]) -> bool:
        with self._lock:
            if self._abandoned:
                return False
            self._thread = primitives.get_ident()
        try:
            unit()
        except UnitAbandoned:
            return False
        finally:
            self._leave()
        return True

    def _leave(self) -> None:
        with self._lock:
            self._thread = None
            if self._abandoned:  # perhaps raised, and not arrived
                primitives.take_raised(UnitAbandoned)
