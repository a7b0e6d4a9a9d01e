"""Negative controls of schedules: edits that some life must show."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from leaderq.schedules import plan as plans
from leaderq.schedules import timetable
from leaderq.schedules.definition import OnCrash
from leaderq.schedules.plan import Step
from leaderq.schedules.stored import StoredRecord
from leaderq.schedules.timetable import Timetable
from leaderq.testing.nemesis.history import Kind
from leaderq.zookeeper import SetData
from simulation.control import Edit, NegativeControl, around, patched
from simulation.schedules import ScheduleLife, lead

_of = partial(NegativeControl, lead=lead, make=ScheduleLife)
_plan = plans.plan


@around(StoredRecord, "store")
def _unfenced(real: Any, self: StoredRecord, term: Any, data: bytes, ops: Any = ()) -> Any:
    if self.version is None or ops:
        return real(self, term, data, ops)
    self._session.multi([SetData(self.path, data)], timeout_s=5.0)
    self.version = self._session.get(self.path)[1].version
    return []


@around(Timetable, "_store")
def _afterwards(
    real: Any, self: Timetable, term: Any, slot: Any, record: Any, ops: Any = ()
) -> Any:
    """What is begun is written down with its end."""
    if record.running is None or slot.record is None or slot.record.running is not None:
        return real(self, term, slot, record, ops)
    slot.record = record
    return []


@around(Timetable, "_take")
def _since_the_start(real: Any, self: Timetable, term: Any, slot: Any, found: Any) -> None:
    real(self, term, slot, found)
    now = timetable.clock.now_ms()
    slot.record = replace(slot.record, last=now, next=slot.definition.when.after(now))


def _forgets_what_was_left(record: Any, *rest: Any, **options: Any) -> Step:
    return _plan(replace(record, running=None), *rest, **options)


def _repeats_anyhow(record: Any, definition: Any, *rest: Any, **options: Any) -> Step:
    return _plan(record, replace(definition, on_crash=OnCrash.AGAIN), *rest, **options)


@around(Timetable, "end")
def _interrupted_is_done(real: Any, self: Timetable, tick: Any, error: Any = None) -> None:
    real(self, tick, None if tick.term.ending.is_set() else error)


def _attempts_are_not_counted(record: Any, *rest: Any, **options: Any) -> Step:
    step = _plan(record, *rest, **options)
    run = step.record.running
    if run is None or run.attempt == 1:
        return step
    return replace(step, record=replace(step.record, running=replace(run, attempt=1)))


def _plan_is(edited: Any) -> Edit:
    return patched(timetable, "plan", edited)


@around(Timetable, "next")
def _ticks_are_done_before_the_work(real: Any, self: Timetable, term: Any) -> Any:
    tick = real(self, term)
    if tick is not None:
        tick.write([])
    return tick


_UNWATCHED = {"has_guardian": False, "kinds": (Kind.FREEZE_WORKER, Kind.END_SESSION), "faults": 12}

SCHEDULE_CONTROLS = (
    _of("records are neither fenced nor compared", _unfenced, seed=35, life=_UNWATCHED),
    _of("a tick is written down after the work", _afterwards, seed=0),
    _of(
        "a write whose answer was lost is taken for done",
        patched(StoredRecord, "_holds", lambda *_: True),
        seed=26,
    ),
    _of("missed ticks are counted from the start of a term", _since_the_start, seed=0),
    _of("what was left behind is forgotten", _plan_is(_forgets_what_was_left), seed=0),
    _of("on_crash does not matter", _plan_is(_repeats_anyhow), seed=0),
    _of("attempts are not counted", _plan_is(_attempts_are_not_counted), seed=1),
    _of("an interrupted tick is recorded as done", _interrupted_is_done, seed=9),
    _of("a tick is recorded as done before the work", _ticks_are_done_before_the_work, seed=0),
    _of(
        "any tick is taken for overlapped",
        patched(plans, "_busy", lambda _record: (0, 2**62)),
        seed=3,
    ),
)
