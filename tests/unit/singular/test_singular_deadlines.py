"""A request that is not begun by its deadline is not begun at all, and nobody is left to guess."""

from __future__ import annotations

import threading

import pytest
from held import WAIT_S, Clock, Held, Told, in_thread

from leaderq.errors import DeadlineExceeded
from leaderq.singular import SingularUpdateQueue
from leaderq.testing import eventually


def test_the_queue_may_have_a_deadline_for_all(clock: Clock) -> None:
    held, told = Held(), Told()
    with SingularUpdateQueue(held, on_error=told, deadline_s=5) as queue:
        queue.post("a")
        assert held.begun.wait(WAIT_S)
        queue.post("b")
        queue.post("c", deadline_s=50)
        clock.at_s += 6
        held.go.set()
    assert held.applied == ["a", "c"]
    assert told.kinds == [("b", DeadlineExceeded)]
    assert told.errors[0][1].late_s == 1  # type: ignore[attr-defined]


def test_who_waits_learns_of_a_missed_deadline_though_the_writer_is_busy() -> None:
    held, told = Held(), Told()
    with SingularUpdateQueue(held, on_error=told) as queue:
        queue.post("a")
        assert held.begun.wait(WAIT_S)
        for timeout in (None, WAIT_S):
            with pytest.raises(DeadlineExceeded):
                queue.submit("late", deadline_s=0.01).result(timeout)
        assert told.errors == []  # it is told on the writer's thread
        held.go.set()
    assert held.applied == ["a"]
    assert told.kinds == [("late", DeadlineExceeded)] * 2


@pytest.mark.parametrize("timeout", [None, WAIT_S])
def test_one_who_waits_beyond_the_deadline_gets_what_was_begun_in_time(
    clock: Clock, timeout: float | None
) -> None:
    steps = threading.Semaphore(0)

    def stepwise(letter: str) -> str:
        assert steps.acquire(timeout=WAIT_S)
        return letter

    with SingularUpdateQueue(stepwise) as queue:
        queue.post("a")
        ticket = queue.submit("b", deadline_s=0.05)
        thread, outcome = in_thread(ticket.result, timeout)
        steps.release()
        eventually(ticket.running)
        clock.at_s += 6
        assert not ticket.expire_if_due()
        assert outcome == []
        steps.release()
        thread.join(WAIT_S)
    assert outcome == ["b"]


def test_a_deadline_of_zero_has_come_when_it_is_given(clock: Clock) -> None:
    told = Told()
    with SingularUpdateQueue(lambda n: n, on_error=told) as queue:
        assert isinstance(queue.submit("a", deadline_s=0).exception(), DeadlineExceeded)
    assert told.kinds == [("a", DeadlineExceeded)]
