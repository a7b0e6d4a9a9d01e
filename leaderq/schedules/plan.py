"""Decides what to do about a schedule now, from values only (pure).

The input is the record, the definition, the operators' wishes and the time. The result is the next
record, which must be stored before anything else happens, and whether to work on a tick. Nothing
here waits or reads a clock, so threads, event loops and simulations can all use it.

A record accounts for each tick up to ``last`` once: as a run, or in a gap with the reason. The next
leader continues after ``last``. If a tick is *running* in a record that a new leader reads, it was
left behind: its process died, or its term ended before its end was written.

Missed ticks are computed from the times in the record. If the definition has changed, its new times
count as soon as nothing is due by the old ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from leaderq.schedules.definition import CatchUp, Definition, OnCrash, Overlap, When
from leaderq.schedules.record import (
    KEPT,
    PassedOver,
    ScheduleRecord,
    ScheduleWishes,
    TickGap,
    TickOutcome,
    TickRun,
)

MOST_CAUGHT_UP = 100
"""With ``catch_up="all"`` at most so many ticks are run: the newest."""
ON_TIME_MS = 60_000
"""With ``catch_up="none"`` a tick may be so late, because a change of leader takes seconds."""


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now. First store ``record``, if it is not the one that was given. Then, if
    ``begins``, work on its ``running``. ``gaps``: the ticks that this step passed over. ``lost``: a
    run that it gave up.
    """

    record: ScheduleRecord
    begins: bool = False
    gaps: tuple[TickGap, ...] = ()
    lost: TickRun | None = None


def first_record(definition: Definition, now: int) -> ScheduleRecord:
    """The first record of a schedule: no tick before ``now`` counts as missed."""
    return ScheduleRecord(now, definition.when, definition.when.after(now))


def plan(
    record: ScheduleRecord,
    definition: Definition,
    wishes: ScheduleWishes,
    now: int,
    *,
    term: int,
    candidate: str,
) -> Step:
    """Return what the leader of ``term`` must do at ``now``."""
    lost = None
    if wishes.restarts > record.restarts:
        fresh = replace(first_record(definition, now), ran=record.ran, history=record.history)
        record = replace(fresh, restarts=wishes.restarts, running=record.running)
    left = record.running
    if left is not None and not wishes.paused:
        if definition.on_crash is OnCrash.AGAIN and not _too_old(left.at, definition, now):
            again = replace(
                left, began=now, term=term, candidate=candidate, attempt=left.attempt + 1
            )
            return Step(replace(record, running=again), begins=True)
        lost = replace(left, outcome=TickOutcome.LOST)
        record = replace(record, running=None, history=_with(record.history, record.when, lost))
    if record.running is None and wishes.run > record.ran:
        asked = record.ran + 1
        run = TickRun(_asked_at(record, now), now, term, candidate, key=f"run-now {asked}")
        return Step(replace(record, running=run, ran=asked), begins=True, lost=lost)
    ticks = record.when.between(record.last, now)
    if not ticks:
        if record.when != definition.when:
            record = replace(
                record, when=definition.when, last=now, next=definition.when.after(now)
            )
        return Step(record, lost=lost)
    chosen, passed = _chosen(ticks, record, definition, wishes, now)
    gaps = _gaps(passed)
    first = record.when.after(record.last)
    assert first is not None  # there are ticks
    if first < ticks[0]:  # only the newest were looked at, and most of them are passed over
        gaps = (replace(gaps[0], first=first), *gaps[1:])
    last = chosen if chosen is not None and definition.catch_up is _ALL else ticks[-1]
    record = replace(
        record,
        last=last,
        next=record.when.after(last),
        history=_with(record.history, record.when, *gaps),
    )
    if chosen is None:
        return Step(record, gaps=gaps, lost=lost)
    missed = sum(why in (PassedOver.MISSED, PassedOver.TOO_OLD) for _, why in passed)
    run = TickRun(chosen, now, term, candidate, missed=missed)
    return Step(replace(record, running=run), begins=True, gaps=gaps, lost=lost)


def ended(
    record: ScheduleRecord, now: int, outcome: TickOutcome, error: str | None = None
) -> ScheduleRecord:
    """Return the record with the end of its running tick."""
    assert record.running is not None  # it was begun
    run = replace(record.running, ended=now, outcome=outcome, error=error)
    return replace(record, running=None, history=_with(record.history, record.when, run))


def _asked_at(record: ScheduleRecord, now: int) -> int:
    """The time that a requested run stands for. No two runs get the same time, even if the calendar
    stands still.
    """
    return max([now, *(one.at + 1 for one in record.history if isinstance(one, TickRun))])


Passed = tuple[int, PassedOver]
History = tuple[TickRun | TickGap, ...]


def _chosen(
    ticks: Sequence[int],
    record: ScheduleRecord,
    definition: Definition,
    wishes: ScheduleWishes,
    now: int,
) -> tuple[int | None, list[Passed]]:
    """Return the tick to run, or ``None``, and the ticks to pass over. With ``catch_up="all"`` the
    ticks after the chosen one are left for later.
    """
    if wishes.paused:
        return None, [(at, PassedOver.PAUSED) for at in ticks]
    began, until = _busy(record)
    overlapped = {at for at in ticks if began < at <= until}
    skips = definition.overlap is Overlap.SKIP and definition.catch_up is not _ALL
    passed: list[Passed] = []
    fit: list[int] = []
    for at in ticks:
        if skips and at in overlapped:
            passed.append((at, PassedOver.OVERLAP))
        elif _too_old(until if at in overlapped else at, definition, now):
            passed.append((at, PassedOver.TOO_OLD))
        else:
            fit.append(at)
    if not fit:
        return None, passed
    if definition.catch_up is _ALL:
        passed += [(at, PassedOver.TOO_MANY) for at in fit[:-MOST_CAUGHT_UP]]
        return fit[-MOST_CAUGHT_UP:][0], sorted(passed)
    newest = fit[-1]
    age = now - (until if newest in overlapped else newest)
    if definition.catch_up is CatchUp.NONE and age > ON_TIME_MS:
        return None, sorted(passed + [(at, PassedOver.LATE) for at in fit])
    return newest, sorted(passed + [(at, PassedOver.MISSED) for at in fit[:-1]])


_ALL = CatchUp.ALL


def _too_old(at: int, definition: Definition, now: int) -> bool:
    return definition.grace_ms is not None and now - at > definition.grace_ms


def _busy(record: ScheduleRecord) -> tuple[int, int]:
    """When the last run at a time of the schedule began and ended."""
    for one in reversed(record.history):
        if isinstance(one, TickRun) and one.key is None and one.ended is not None:
            return one.began, one.ended
    return 0, 0


def _gaps(passed: Sequence[Passed]) -> tuple[TickGap, ...]:
    found = []
    for why, several in groupby(passed, key=lambda one: one[1]):
        ticks = [at for at, _ in several]
        found.append(TickGap(ticks[0], ticks[-1], len(ticks), why))
    return tuple(found)


def _with(history: History, when: When, *more: TickRun | TickGap) -> History:
    """The history with ``more`` at its end; a gap that continues the last gap is merged with it."""
    found = list(history)
    for one in more:
        before = found[-1] if found else None
        if (
            isinstance(one, TickGap)
            and isinstance(before, TickGap)
            and before.why is one.why
            and when.after(before.last) == one.first
        ):
            found[-1] = replace(before, last=one.last, count=before.count + one.count)
        else:
            found.append(one)
    return tuple(found[-KEPT:])
