"""How one batch is handled where work and committing are not simply one after the other: each case
as what is asked of the career.

At most once, terms that end or pause, a pace, records that kill the process.
"""

from __future__ import annotations

import pytest
from fake_career import (
    A,
    B,
    FakeCareer,
    FakeMarks,
    FakeRateLimiter,
    a_batch,
    a_handler,
    a_term,
)

from leaderq.kafka.handling.on_error import ProcessDied, dead_letter, retry, skip
from leaderq.term import Reason

ALWAYS = 1000
BY_PARTITION = "partition"


# -- at most once


def test_at_most_once_commits_before_it_handles() -> None:
    career = FakeCareer()
    assert a_handler(career, delivery="at_most_once").work(a_batch(A=[0, 1], B=[5]), a_term())
    assert career.log == ["commit A=2 B=6", "handle A0 A1 B5"]


def test_at_most_once_gives_a_part_up_rather_than_handling_some_of_it_twice() -> None:
    career = FakeCareer(fails={(A, 1): ALWAYS})
    told: list[int] = []
    handler = a_handler(
        career,
        "skip",
        delivery="at_most_once",
        on_skipped=lambda record, *_: told.append(record.offset),
    )
    assert handler.work(a_batch(A=[0, 1, 2]), a_term())
    assert career.log == ["commit A=3", "handle A0 A1 A2"]
    assert told == [0, 1, 2]


# -- the term ends or pauses


@pytest.mark.parametrize("undoes", [False, True])
@pytest.mark.parametrize("pauses", [False, True])
def test_between_parts_a_term_that_ends_or_pauses_is_noticed_and_what_is_done_is_committed(
    pauses: bool, undoes: bool
) -> None:
    career = FakeCareer(undoes=undoes)
    term = a_term()
    career.before_handle = lambda _handed: (
        term.pause(True) if pauses else term.wind_up(Reason.STEP_DOWN)
    )
    assert not a_handler(career, batches=BY_PARTITION).work(a_batch(A=[0, 1], B=[5]), term)
    assert career.log == ["handle A0 A1", "commit A=2"]


# -- pace


def test_a_failure_undoes_the_parts_before_it_that_are_uncommitted_and_they_are_done_again() -> (
    None
):
    career = FakeCareer(fails={(A, 2): 1}, undoes=True)
    assert a_handler(
        career, retry(1, backoff_s=0), rate_limit=FakeRateLimiter(career, 2, 0.0)
    ).work(a_batch(A=[0, 1, 2]), a_term())
    assert career.log == [
        "handed out", "handle A0 A1", "handed out", "handle A2", "undo",
        "handle A0 A1", "commit A=2", "handle A2", "commit A=3",
    ]  # fmt: skip
    assert career.effects == [(A, 0), (A, 1), (A, 2)]


# -- records that kill the process


def test_a_careful_partition_is_handled_one_by_one_each_record_marked_before() -> None:
    career = FakeCareer()
    assert a_handler(career, skip(), marks=FakeMarks(career, {A: 2})).work(
        a_batch(A=[0, 1, 2, 3], B=[5]), a_term()
    )
    assert career.log == [
        "mark A0", "handle A0", "commit A=1", "unmark A0",
        "mark A1", "handle A1", "commit A=2", "unmark A1",
        "handle A2 A3", "handle B5", "commit A=4 B=6",
    ]  # fmt: skip


def test_a_record_that_took_too_many_processes_is_passed_over_unhandled() -> None:
    career = FakeCareer()
    told: list[tuple[object, ...]] = []
    marks = FakeMarks(career, {A: 3}, {(A, 0): 1, (A, 1): 2})
    handler = a_handler(
        career,
        dead_letter(deaths=2),
        marks=marks,
        on_dead_lettered=lambda record, error, attempts, _topic: told.append(
            (record.offset, type(error), attempts)
        ),
    )
    assert handler.work(a_batch(A=[0, 1, 2]), a_term())
    assert career.log == [
        "mark A0", "handle A0", "commit A=1", "unmark A0",
        "mark A1",
        "dead letter A1 on billing-dead after 2: "
        "the process died 2 times while handling this record",
        "commit A=2", "unmark A1",
        "mark A2", "handle A2", "commit A=3", "unmark A2",
    ]  # fmt: skip
    assert told == [(1, ProcessDied, 2)]


@pytest.mark.parametrize(
    ("on_error", "delivery"), [("raise", "at_least_once"), ("skip", "at_most_once")]
)
def test_marks_are_not_used_where_they_would_decide_nothing(on_error: str, delivery: str) -> None:
    career = FakeCareer()
    assert a_handler(career, on_error, delivery=delivery, marks=FakeMarks(career, {A: 9})).work(
        a_batch(A=[0, 1]), a_term()
    )
    assert "handle A0 A1" in career.log
    assert not [line for line in career.log if "mark" in line]


def test_no_workers_run_while_a_partition_is_careful() -> None:
    career = FakeCareer()
    handler = a_handler(career, skip(), workers=3, marks=FakeMarks(career, {B: 6}))
    assert handler.work(a_batch(A=[0, 1], B=[5]), a_term())
    handler.close()
    assert career.log == [
        "handle A0 A1",
        "commit A=2",
        "mark B5",
        "handle B5",
        "commit B=6",
        "unmark B5",
    ]
