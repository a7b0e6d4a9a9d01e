"""A bounded queue: who waits for room, who is refused, and in which order they get in."""

from __future__ import annotations

import queue as std
import threading
from typing import Any

import pytest
from held import WAIT_S, Held, in_thread

from leaderq.errors import QueueClosed, QueueFull
from leaderq.singular import SingularUpdateQueue, mailbox
from leaderq.testing import eventually


class Steps:
    """A handler that applies one request each time the test lets it."""

    def __init__(self) -> None:
        self.may = threading.Semaphore(0)
        self.applied: list[Any] = []

    def __call__(self, request: Any) -> None:
        assert self.may.acquire(timeout=WAIT_S)
        self.applied.append(request)


def filled(handler: Any, **options: Any) -> SingularUpdateQueue[Any, Any]:
    """A queue of capacity 4, with ``0`` in hand and 1 to 4 waiting."""
    queue: SingularUpdateQueue[Any, Any] = SingularUpdateQueue(handler, capacity=4, **options)
    queue.post(0)
    eventually(lambda: queue.stats().in_hand == 1 and queue.depth == 0)
    for number in range(1, 5):
        queue.post(number)
    return queue


def test_a_queue_is_bounded_unless_it_is_told_otherwise() -> None:
    assert SingularUpdateQueue(print).capacity == 10_000
    assert SingularUpdateQueue(print, capacity=None).capacity is None


def test_a_full_queue_refuses_at_once_if_it_shall_not_wait() -> None:
    held = Held()
    queue = filled(held, timeout_s=0)
    for put in (queue.post, queue.submit):
        with pytest.raises(QueueFull, match="4 requests") as caught:
            put("late")
        assert caught.value.capacity == 4
        assert isinstance(caught.value, std.Full)
    held.go.set()
    assert queue.close()
    assert held.applied == [0, 1, 2, 3, 4]
    assert queue.stats().refused == 2
    assert queue.stats().accepted == 5


def test_producers_get_in_in_the_order_of_coming_and_nobody_overtakes() -> None:
    steps = Steps()
    queue = filled(steps)
    threads = []
    for number in range(5, 12):
        threads.append(in_thread(queue.post, number)[0])
        eventually(lambda number=number: queue.stats().waiting == number - 4)
    for _ in range(3):
        steps.may.release()
        with pytest.raises(QueueFull):
            queue.post("newcomer", timeout_s=0)
    steps.may.release(20)
    for thread in threads:
        thread.join(WAIT_S)
    assert queue.close()
    assert steps.applied == list(range(12))


def test_never_more_than_the_capacity_wait_however_many_come_at_once() -> None:
    held = Held()
    queue = SingularUpdateQueue(held, capacity=5, timeout_s=0)
    queue.post("in hand")
    assert held.begun.wait(WAIT_S)
    for _ in range(200):
        begin = threading.Barrier(8)
        crowd = [
            in_thread(lambda begin=begin: (begin.wait(WAIT_S), queue.post("x"))) for _ in range(8)
        ]
        for thread, _ in crowd:
            thread.join(WAIT_S)
        assert queue.depth == 5
    held.go.set()
    assert queue.close()
    assert queue.stats().accepted == 6


def test_closing_refuses_who_waits_for_room() -> None:
    held = Held()
    queue = filled(held)
    thread, outcome = in_thread(queue.submit, "late")
    eventually(lambda: queue.stats().waiting == 1)
    assert not queue.close(timeout_s=0)
    thread.join(WAIT_S)
    assert isinstance(outcome[0], QueueClosed)
    held.go.set()
    assert queue.close()
    assert held.applied == [0, 1, 2, 3, 4]
    assert queue.stats().refused == 1


@pytest.mark.parametrize("where", ["waiting", "putting"])
def test_an_interrupt_withdraws_the_request_and_costs_no_room(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    held = Held()
    queue = filled(held)
    with monkeypatch.context() as patch:
        if where == "waiting":
            patch.setattr(mailbox.Waker, "wait", interrupted)
        else:
            held.go.set()
            eventually(lambda: queue.depth == 0)
            patch.setattr(queue._mailbox, "_put", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.post("interrupted")
    assert queue.stats().waiting == 0
    held.go.set()
    eventually(lambda: queue.depth == 0)
    queue.post(5, timeout_s=0)
    eventually(lambda: len(queue._mailbox._permits) == 4)
    assert queue.close()
    assert held.applied == [0, 1, 2, 3, 4, 5]
