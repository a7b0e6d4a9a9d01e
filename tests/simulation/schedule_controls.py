"""Negative controls of schedules: edits that some life must show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

from leaderq.schedules import plan as plans
from leaderq.schedules import timetable
from leaderq.schedules.definition import OnCrash
from leaderq.schedules.plan import Step
from leaderq.schedules.stored import StoredRecord
from leaderq.schedules.timetable import Timetable
from leaderq.testing.nemesis.history import Kind
from leaderq.zookeeper import SetData
from simulation.control import Edit, NegativeControl, patched
from simulation.schedules import ScheduleLife, lead

_of = partial(NegativeControl, lead=lead, make=ScheduleLife)
_store, _take, _plan, _end, _stored = (
    Timetable._store,
    Timetable._take,
    plans.plan,
    Timetable.end,
    StoredRecord.store,
)


def _unfenced(self: StoredRecord, term: Any, data: bytes, ops: Any = ()) -> Any:
    if self.version is None or ops:
        return _stored(self, term, data, ops)
    self._session.multi([SetData(self.path, data)], timeout_s=5.0)
    self.version = self._session.get(self.path)[1].version
    return []


def _afterwards(self: Timetable, term: Any, slot: Any, record: Any, ops: Any = ()) -> Any:
    """What is begun is written down with its end."""
    if record.running is None or slot.record is None or slot.record.running is not None:
        return _store(self, term, slot, record, ops)
    slot.record = record
    return []


def _since_the_start(self: Timetable, term: Any, slot: Any, found: Any) -> None:
    _take(self, term, slot, found)
    now = timetable.clock.now_ms()
    slot.record = replace(slot.record, last=now, next=slot.definition.when.after(now))


def _forgets_what_was_left(record: Any, *rest: Any, **options: Any) -> Step:
    return _plan(replace(record, running=None), *rest, **options)


def _repeats_anyhow(record: Any, definition: Any, *rest: Any, **options: Any) -> Step:
    return _plan(record, replace(definition, on_crash=OnCrash.AGAIN), *rest, **options)


def _interrupted_is_done(self: Timetable, tick: Any, error: Any = None) -> None:
    _end(self, tick, None if tick.term.ending.is_set() else error)


def _attempts_are_not_counted(record: Any, *rest: Any, **options: Any) -> Step:
    step = _plan(record, *rest, **options)
    run = step.record.running
    if run is None or run.attempt == 1:
        return step
    return replace(step, record=replace(step.record, running=replace(run, attempt=1)))


def _plan_is(edited: Any) -> Edit:
    return patched(timetable, "plan", edited)


@contextmanager
def _ticks_are_done_before_the_work() -> Iterator[None]:
    real = Timetable.next

    def begun(self: Timetable, term: Any) -> Any:
        tick = real(self, term)
        if tick is not None:
            tick.write([])
        return tick

    with mock.patch.object(Timetable, "next", begun):
        yield


@contextmanager
def _without_overlap() -> Iterator[None]:
    with mock.patch.object(plans, "_busy", lambda _record: (0, 2**62)):
        yield


_UNWATCHED = {
    "has_guardian": False,
    "kinds": (Kind.FREEZE_WORKER, Kind.END_SESSION),
    "faults": 12,
}

SCHEDULE_CONTROLS = (
    _of(
        "records are neither fenced nor compared",
        patched(StoredRecord, "store", _unfenced),
        seed=35,
        life=_UNWATCHED,
    ),
    _of("a tick is written down after the work", patched(Timetable, "_store", _afterwards), seed=0),
    _of(
        "a write whose answer was lost is taken for done",
        patched(StoredRecord, "_holds", lambda *_: True),
        seed=12,
    ),
    _of(
        "missed ticks are counted from the start of a term",
        patched(Timetable, "_take", _since_the_start),
        seed=0,
    ),
    _of("what was left behind is forgotten", _plan_is(_forgets_what_was_left), seed=0),
    _of("on_crash does not matter", _plan_is(_repeats_anyhow), seed=0),
    _of("attempts are not counted", _plan_is(_attempts_are_not_counted), seed=1),
    _of(
        "an interrupted tick is recorded as done",
        patched(Timetable, "end", _interrupted_is_done),
        seed=9,
    ),
    _of("a tick is recorded as done before the work", _ticks_are_done_before_the_work, seed=0),
    _of("any tick is taken for overlapped", _without_overlap, seed=3),
)
