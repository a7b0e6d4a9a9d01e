"""Several partitions at once: the threads, and the handling on them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

import pytest
from fake_career import (
    A,
    B,
    Bad,
    FakeCareer,
    a_batch,
    a_handler,
    open_term,
    sorted_until_committed,
    where,
)

from leaderq.kafka.handling.batch_handler import BatchHandler
from leaderq.kafka.handling.parts import PartitionWorkers
from leaderq.kafka.record import Record
from leaderq.running.stages import AbandonableUnit
from leaderq.term import Reason
from leaderq.testing import eventually

ALWAYS = 1000
WAIT_S = 30.0


def yes() -> bool:
    return True


# -- the threads


def test_outcomes_come_in_the_order_of_the_tasks_whatever_their_kind() -> None:
    workers = PartitionWorkers(2, "test")

    def fail() -> int:
        raise KeyboardInterrupt

    outcomes = workers.run([lambda: 1, fail, lambda: 3], yes)
    workers.close()
    assert [outcome.value for outcome in outcomes] == [1, None, 3]
    assert isinstance(outcomes[1].error, KeyboardInterrupt)
    assert all(outcome.began for outcome in outcomes)


def test_tasks_run_at_the_same_time_and_never_on_more_threads_than_asked_for() -> None:
    workers = PartitionWorkers(3, "test")
    barrier = threading.Barrier(3)
    meet: Callable[[], int] = partial(barrier.wait, WAIT_S)
    outcomes = workers.run([meet] * 9, yes)
    assert [outcome.error for outcome in outcomes] == [None] * 9
    assert len([thread for thread in threading.enumerate() if thread.name.startswith("test-")]) == 3
    workers.close()


def test_no_task_begins_once_it_may_not_even_if_it_might_again() -> None:
    workers = PartitionWorkers(1, "test")
    answers = iter([True, True, False, True])
    outcomes = workers.run([lambda: 1] * 4, lambda: next(answers))
    workers.close()
    assert [outcome.began for outcome in outcomes] == [True, True, False, False]


def test_threads_end_when_closed_and_are_made_again_when_needed() -> None:
    workers = PartitionWorkers(2, "test-closing")
    for _ in range(2):
        assert [outcome.value for outcome in workers.run([lambda: 1, lambda: 2], yes)] == [1, 2]
        workers.close()
        workers.close()
        assert not [
            thread for thread in threading.enumerate() if thread.name.startswith("test-closing")
        ]


def test_a_thread_interrupted_in_its_wait_begins_no_task_and_leaves_when_begun_ones_are_done() -> (
    None
):
    workers = PartitionWorkers(1, "test")
    unit = AbandonableUnit()
    began, may_end = threading.Event(), threading.Event()
    ran: list[str] = []

    def first() -> None:
        began.set()
        assert may_end.wait(WAIT_S)
        ran.append("first")

    def waits() -> None:
        assert not unit.run(lambda: workers.run([first, lambda: ran.append("second")], yes))

    waiting = threading.Thread(target=waits)
    waiting.start()
    assert began.wait(WAIT_S)
    unit.abandon()
    # The worker is busy with the first task: the second waits until the waiting thread is struck.
    eventually(lambda: not workers._todo, timeout_s=WAIT_S)
    assert waiting.is_alive()
    may_end.set()
    waiting.join(WAIT_S)
    assert not waiting.is_alive()
    assert ran == ["first"]
    assert [outcome.value for outcome in workers.run([lambda: 5], yes)] == [5]
    workers.close()


# -- the handling on them


def a_parallel(career: FakeCareer, on_error: object = "raise", **more: object) -> BatchHandler:
    return a_handler(career, on_error, workers=3, **more)  # type: ignore[arg-type]


def test_partitions_are_handled_at_the_same_time_and_committed_once() -> None:
    career = FakeCareer()
    barrier = threading.Barrier(3)
    career.before_handle = lambda _handed: barrier.wait(WAIT_S) and None
    handler = a_parallel(career)
    assert handler.work(a_batch(A=[0, 1], B=[5], C=[2, 3]), open_term(7))
    handler.close()
    assert sorted_until_committed(career.log) == [
        "handle A0 A1",
        "handle B5",
        "handle C2 C3",
        "commit A=2 B=6 C=4",
    ]


def test_finished_records_are_committed_once_then_the_first_error_in_order_is_raised(
    caplog: pytest.LogCaptureFixture,
) -> None:
    career = FakeCareer(fails={(A, 1): ALWAYS, (B, 5): ALWAYS}, names=True)
    handler = a_parallel(career)
    with pytest.raises(Bad, match="A1"):
        handler.work(a_batch(C=[2, 3], B=[5, 6], A=[0, 1]), open_term(7))
    handler.close()
    assert sorted_until_committed(career.log) == [
        "handle A0 A1",
        "handle B5 B6",
        "handle C2 C3",
        "commit A=1 C=4",
    ]
    assert "records=t-0@0.." not in caplog.text
    assert "done about them in this batch career=billing records=t-1@5" in caplog.text


def test_at_most_once_commits_all_partitions_at_once_and_handles_all_though_the_term_ends() -> None:
    career = FakeCareer()
    term = open_term(7)
    career.before_commit = lambda: term.wind_up(Reason.STEP_DOWN)
    handler = a_parallel(career, delivery="at_most_once")
    assert handler.work(a_batch(A=[0], B=[0], C=[0]), term)
    handler.close()
    assert career.log[0] == "commit A=1 B=1 C=1"
    assert sorted(career.log[1:]) == ["handle A0", "handle B0", "handle C0"]


def test_the_records_of_a_partition_are_in_order_on_one_thread() -> None:
    career = FakeCareer()
    threads: dict[object, set[str]] = {}

    def note(handed: Sequence[Record]) -> None:
        threads.setdefault(where(handed[0])[0], set()).add(threading.current_thread().name)

    career.before_handle = note
    handler = a_parallel(career)
    assert handler.work(a_batch(A=range(50), B=range(50)), open_term(7))
    handler.close()
    assert [offset for each, offset in career.effects if each == A] == list(range(50))
    assert [len(names) for names in threads.values()] == [1, 1]
