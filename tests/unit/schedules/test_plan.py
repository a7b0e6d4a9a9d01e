from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from leaderq.schedules import record as records
from leaderq.schedules.definition import CatchUp, Definition, OnCrash, Overlap, When
from leaderq.schedules.plan import Step, ended, first_record, plan
from leaderq.schedules.record import KEPT, PassedOver, ScheduleWishes, TickGap, TickOutcome, TickRun

MINUTE = 60_000
WHEN = When(None, "UTC", MINUTE)
PAUSED = ScheduleWishes(paused=True)


def definition(**options: Any) -> Definition:
    return Definition("tidy", WHEN, **options)


def at(minutes: float) -> int:
    return round(minutes * MINUTE)


def after(
    minutes: float,
    *,
    last: float = 10,
    wishes: ScheduleWishes = ScheduleWishes(),  # noqa: B008
    running: TickRun | None = None,
    history: tuple[TickRun | TickGap, ...] = (),
    when: When = WHEN,
    **options: Any,
) -> Step:
    """What follows ``minutes`` after the epoch, if ticks up to minute ``last`` are known."""
    record = records.ScheduleRecord(at(last), when, when.after(at(last)), running, history=history)
    return then(record, minutes, wishes, **options)


def then(
    record: records.ScheduleRecord,
    minutes: float,
    wishes: ScheduleWishes = ScheduleWishes(),  # noqa: B008
    **options: Any,
) -> Step:
    """What follows ``minutes`` after the epoch, if this is known."""
    return plan(record, definition(**options), wishes, at(minutes), term=7, candidate="a")


def ran(began: float, until: float, tick: float) -> TickRun:
    return TickRun(at(tick), at(began), 6, "b", ended=at(until), outcome=TickOutcome.DONE)


def seen(step: Step) -> tuple[Any, ...]:
    """The tick that begins, its ``missed``, and the gaps, all in minutes."""
    run = step.record.running if step.begins else None
    gaps = [(gap.first // MINUTE, gap.last // MINUTE, gap.why.value) for gap in step.gaps]
    return (None, 0, gaps) if run is None else (run.at // MINUTE, run.missed, gaps)


def test_nothing_is_due_before_the_next_tick_and_it_is_run_then():
    new = first_record(definition(), at(10.5))  # has missed nothing
    assert (new.last, new.next) == (at(10.5), at(11))
    early = after(10.9)
    assert not early.begins and early.record.next == at(11)
    due = after(11)
    assert seen(due) == (11, 0, []) and due.record.last == at(11) and due.record.next == at(12)
    assert due.record.running == TickRun(at(11), at(11), 7, "a")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (15, 4, [(11, 14, "missed")])),
        ({"catch_up": CatchUp.NONE}, (15, 4, [(11, 14, "missed")])),
        ({"catch_up": CatchUp.ALL}, (11, 0, [])),
        ({"grace_ms": at(2)}, (15, 4, [(11, 13, "too-old"), (14, 14, "missed")])),
        ({"grace_ms": at(4.5)}, (15, 4, [(11, 14, "missed")])),  # as old as grace, and run
        ({"catch_up": CatchUp.ALL, "grace_ms": at(2)}, (14, 3, [(11, 13, "too-old")])),
        ({"catch_up": CatchUp.ALL, "wishes": PAUSED}, (None, 0, [(11, 15, "paused")])),
        ({"grace_ms": at(0.4)}, (None, 0, [(11, 15, "too-old")])),
    ],
)
def test_missed_ticks_are_run_or_stand_in_a_gap(options, expected):
    assert seen(after(15.5, **options)) == expected


def test_without_catching_up_a_tick_is_run_that_is_hardly_late():
    hourly = When(None, "UTC", at(60))
    late = {"last": 0, "when": hourly, "catch_up": CatchUp.NONE}
    assert seen(after(61, **late)) == (60, 0, [])
    assert seen(after(61 + 1 / MINUTE, **late)) == (None, 0, [(60, 60, "late")])


def test_all_are_caught_up_oldest_first_and_of_very_many_the_newest():
    step = after(115, catch_up=CatchUp.ALL)
    assert seen(step) == (16, 0, [(11, 15, "too-many")])
    record, done = step.record, []
    while step.begins:
        done.append(record.running.at // MINUTE)
        record = ended(record, at(200), TickOutcome.DONE)
        step = then(record, 115, catch_up=CatchUp.ALL)
        record = step.record
    assert done == [*range(16, 116)]


RUN = ran(10, 13.2, 10)
QUEUED = {"overlap": Overlap.QUEUE}


@pytest.mark.parametrize(
    ("run", "minutes", "options", "expected"),
    [
        (RUN, 13.3, {}, (None, 0, [(11, 13, "overlap")])),
        (RUN, 13.3, QUEUED, (13, 2, [(11, 12, "missed")])),
        (RUN, 13.3, {**QUEUED, "catch_up": CatchUp.NONE}, (13, 2, [(11, 12, "missed")])),
        (RUN, 13.3, {**QUEUED, "grace_ms": at(0.5)}, (13, 2, [(11, 12, "missed")])),
        (RUN, 13.3, {"catch_up": CatchUp.ALL}, (11, 0, [])),
        # a tick at the very beginning is not overlapped, and one at the end is
        (ran(11, 13, 10), 13.1, {}, (11, 0, [(12, 13, "overlap")])),
        # 10 was begun again after an outage
        (ran(13.5, 14.2, 10), 14.3, {}, (13, 2, [(11, 12, "missed"), (14, 14, "overlap")])),
        # an operator asked for it
        (replace(ran(10.5, 11.5, 10.5), key="run-now 1"), 11.6, {}, (11, 0, [])),
    ],
)
def test_ticks_during_a_run_are_skipped_or_one_is_queued(run, minutes, options, expected):
    step = after(minutes, history=(run,), **options)
    assert seen(step) == expected
    newest = max(expected[0] or 0, *(last for _, last, _ in expected[2]), 0)
    assert step.record.last == at(newest), "each is accounted for once"


def test_what_was_left_behind_is_run_again_before_all_else():
    left = TickRun(at(10), at(10), 6, "b", missed=3)
    step = after(14.5, running=left)
    expected = TickRun(at(10), at(14.5), 7, "a", attempt=2, missed=3)
    assert step.begins and step.record.running == expected and step.record.last == at(10)


@pytest.mark.parametrize("options", [{"on_crash": OnCrash.SKIP}, {"grace_ms": at(2)}])
def test_what_was_left_behind_and_is_not_to_be_repeated_is_written_down_as_lost(options):
    left = TickRun(at(10), at(10), 6, "b")
    step = after(12.5, running=left, **options)
    assert step.lost == replace(left, outcome=TickOutcome.LOST)
    assert step.record.history[0] == step.lost
    assert step.begins and step.record.running is not None
    assert step.record.running.at == at(12)


def test_a_paused_schedule_lists_what_it_leaves_out_as_one_gap():
    run = ran(10, 10.2, 10)
    first = after(12.5, wishes=PAUSED, history=(run,))
    second = then(first.record, 13, PAUSED)
    assert not first.begins and not second.begins
    assert second.record.history == (run, TickGap(at(11), at(13), 3, PassedOver.PAUSED))
    resumed = then(second.record, 14)
    assert seen(resumed) == (14, 0, [])


def test_a_paused_schedule_keeps_what_was_left_behind_until_it_is_resumed():
    left = TickRun(at(10), at(10), 6, "b")
    step = after(11.5, running=left, wishes=PAUSED)
    assert not step.begins and step.record.running == left
    asked = after(11.5, running=left, wishes=ScheduleWishes(paused=True, run=1))
    assert not asked.begins and asked.record.running == left
    resumed = then(step.record, 11.6)
    assert resumed.begins and resumed.record.running is not None
    assert resumed.record.running.attempt == 2


def test_run_now_is_a_run_of_its_own_once_for_each_request_even_while_paused():
    wishes = ScheduleWishes(paused=True, run=1)
    step = after(10.5, wishes=wishes)
    assert step.begins and step.record.running is not None and step.record.last == at(10)
    assert step.record.running == TickRun(at(10.5), at(10.5), 7, "a", key="run-now 1")
    record = ended(step.record, at(10.6), TickOutcome.DONE)
    assert not then(record, 10.7, wishes).begins


def test_two_runs_that_were_asked_for_stand_for_two_times_though_the_calendar_is_set_back():
    gap = TickGap(at(10), at(10), 1, PassedOver.PAUSED)
    first = after(10.5, wishes=ScheduleWishes(paused=True, run=1), history=(gap,))
    record = ended(first.record, at(10.6), TickOutcome.DONE)
    second = then(record, 10.4, ScheduleWishes(paused=True, run=2)).record.running
    assert second is not None and (second.at, second.began) == (at(10.5) + 1, at(10.4))


def test_a_calendar_that_was_set_back_repeats_nothing_and_one_set_forward_loses_nothing():
    back = after(5, last=10)
    assert not back.begins and back.record.next == at(11) and back.record.last == at(10)
    forward = after(10 + 24 * 60, last=10)
    assert seen(forward)[0] == 10 + 24 * 60 and forward.record.running is not None
    assert sum(gap.count for gap in forward.gaps) >= 999  # counted up to a thousand
    assert forward.gaps[0].first == at(11)


def test_an_operator_can_let_it_count_from_now_on():
    step = after(5, last=500, wishes=ScheduleWishes(restarts=1))
    assert not step.begins and step.record.last == at(5) and step.record.restarts == 1
    assert then(step.record, 6, ScheduleWishes(restarts=1)).begins


def test_a_changed_definition_does_not_judge_the_past():
    """Ticks that were missed are those of the former one; those of the new one begin now."""
    former = When(None, "UTC", at(60))
    step = after(125.5, last=30, when=former)
    assert seen(step) == (120, 1, [(60, 60, "missed")]) and step.record.when == former
    record = ended(step.record, at(125.6), TickOutcome.DONE)
    changed = then(record, 125.7)
    assert not changed.begins and changed.record.when == WHEN
    assert (changed.record.last, changed.record.next) == (at(125.7), at(126))


def test_the_end_of_a_run_stands_in_the_history_which_is_bounded():
    record = first_record(definition(), at(0))
    for minute in range(1, KEPT + 5):
        record = ended(then(record, minute).record, at(minute), TickOutcome.FAILED, "boom")
    assert len(record.history) == KEPT and record.running is None
    newest = record.history[-1]
    assert isinstance(newest, TickRun)
    assert (newest.at, newest.outcome, newest.error) == (at(KEPT + 4), TickOutcome.FAILED, "boom")


def test_after_a_long_outage_the_first_gap_begins_where_it_was_and_the_others_stay():
    step = after(3000, grace_ms=at(1.5))
    old, missed = step.gaps
    assert (old.first, old.last, old.why) == (at(11), at(2998), PassedOver.TOO_OLD)
    assert (missed.first, missed.last, missed.count) == (at(2999), at(2999), 1)


def test_gaps_are_one_entry_only_if_they_have_one_reason_and_nothing_between_them():
    for first, last, why in ((5, 6, "paused"), (9, 10, "missed")):
        before = TickGap(at(first), at(last), 2, PassedOver(why))
        step = after(11.5, wishes=PAUSED, history=(ran(1, 2, 1), before))
        assert step.record.history[1:] == (before, TickGap(at(11), at(11), 1, PassedOver.PAUSED))
