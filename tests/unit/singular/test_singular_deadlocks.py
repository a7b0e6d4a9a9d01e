"""A wait that would never end is an error at once."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from held import WAIT_S, Held, Told, in_thread

from leaderq.errors import WouldDeadlock
from leaderq.singular import SingularUpdateQueue
from leaderq.testing import eventually


@pytest.mark.parametrize("timeout", [None, WAIT_S])
def test_a_handler_that_waits_for_its_own_queue_is_told_so(timeout: float | None) -> None:
    told = Told()

    def handle(request: str) -> Any:
        return queue.submit("inner").result(timeout) if request == "outer" else request

    with SingularUpdateQueue(handle, name="q", on_error=told) as queue:
        error = queue.submit("outer").exception()
        assert isinstance(error, WouldDeadlock)
        assert "'q' -> 'q'" in str(error)
        assert "post_back" in str(error)
    assert told.kinds == [("outer", WouldDeadlock)]
    assert queue.stats().applied == 1


def test_a_handler_may_ask_a_ticket_that_is_done() -> None:
    tickets: list[Any] = []

    def handle(request: int) -> Any:
        return request or tickets[0].result() + 1

    with SingularUpdateQueue(handle) as queue:
        tickets.append(queue.submit(1))
        assert tickets[0].result() == 1
        assert queue.submit(0).result() == 2


def test_a_handler_may_wait_for_another_queue() -> None:
    with SingularUpdateQueue(lambda n: n * 2) as other, SingularUpdateQueue(lambda n: other.submit(n).result()) as queue:
        assert queue.submit(4).result() == 8


def test_two_handlers_that_wait_for_each_other_are_told_so() -> None:
    meet = threading.Barrier(2, timeout=WAIT_S)
    queues: list[SingularUpdateQueue[str, Any]] = []

    def handle_in(mine: int) -> Any:
        def handle(request: str) -> Any:
            if request == "inner":
                return request
            meet.wait()
            return queues[1 - mine].submit("inner").result()

        return handle

    queues += [SingularUpdateQueue(handle_in(mine), on_error=Told()) for mine in (0, 1)]
    with queues[0], queues[1]:
        tickets = [queue.submit("outer") for queue in queues]
        errors = [ticket.exception(WAIT_S) for ticket in tickets]
    assert [type(error) for error in errors if error is not None][:1] == [WouldDeadlock]


def test_two_writers_that_wait_for_room_in_each_others_queues_are_told_so() -> None:
    meet = threading.Barrier(3, timeout=WAIT_S)
    queues: list[SingularUpdateQueue[str, Any]] = []

    def handle_in(mine: int) -> Any:
        def handle(request: str) -> None:
            if request == "outer":
                meet.wait()
                queues[1 - mine].post("inner")

        return handle

    told = Told()
    queues += [SingularUpdateQueue(handle_in(mine), capacity=1, on_error=told) for mine in (0, 1)]
    with queues[0], queues[1]:
        for queue in queues:
            queue.post("outer")
            queue.post("filling")
        meet.wait()  # both lines are full now
        eventually(lambda: told.errors)
    assert ("outer", WouldDeadlock) in told.kinds


def test_who_writes_nothing_may_wait_for_anything() -> None:
    held = Held()
    with SingularUpdateQueue(held) as queue:
        waits = [in_thread(queue.submit(number).result) for number in range(4)]
        held.go.set()
        for thread, _ in waits:
            thread.join(WAIT_S)
    assert [outcome for _, outcome in waits] == [[0], [1], [2], [3]]
