"""A bounded queue: who waits for room, who is refused, and in which order they get in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from held import WAIT_S, Held, in_thread

from leaderq.errors import QueueClosed, QueueFull
from leaderq.singular import SingularUpdateQueue, gate
from leaderq.testing import eventually


def filled(held: Held, **options: object) -> SingularUpdateQueue[object, object]:
    """A queue of capacity 4, low mark 2, with ``0`` in hand and 1 to 4 in the line."""
    queue = SingularUpdateQueue(held, capacity=4, low=2, **options)  # type: ignore[call-overload]
    queue.post(0)
    assert held.begun.wait(WAIT_S)
    for number in range(1, 5):
        queue.post(number)
    return queue


def test_a_full_queue_refuses_at_once_if_it_shall_not_wait() -> None:
    held = Held()
    queue = filled(held, wait_s=0)
    for put in (queue.post, queue.submit):
        with pytest.raises(QueueFull, match="4 requests") as caught:
            put("late")
        assert caught.value.capacity == 4
    held.go.set()
    assert queue.close()
    assert held.applied == [0, 1, 2, 3, 4]
    assert queue.stats().refused == 2
    assert queue.stats().accepted == 5


def test_a_full_queue_refuses_after_the_time_given_with_the_request() -> None:
    held = Held()
    queue = filled(held)
    with pytest.raises(QueueFull) as caught:
        queue.submit("late", wait_s=0.01)
    assert caught.value.waited_s == 0.01
    with pytest.raises(QueueFull):
        queue.post("late", wait_s=0.01)
    held.go.set()
    assert queue.close()
    assert held.applied == [0, 1, 2, 3, 4]


def test_producers_wait_until_the_low_mark_and_get_in_in_the_order_of_coming() -> None:
    held = Held()
    queue = filled(held)
    threads = []
    for number in range(5, 12):
        threads.append(in_thread(queue.post, number)[0])
        eventually(lambda number=number: queue.stats().waiting == number - 4)
    assert queue.depth == 4
    held.go.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert queue.close()
    assert held.applied == list(range(12))
    assert queue.stats().refused == 0


def test_nobody_overtakes_one_who_waits() -> None:
    """Between the low mark and the capacity there is room, but it is not for newcomers while somebody waits."""
    step = threading.Semaphore(0)
    applied = []

    def stepwise(request: object) -> None:
        assert step.acquire(timeout=WAIT_S)
        applied.append(request)

    queue = SingularUpdateQueue(stepwise, capacity=4, low=1)
    queue.post(0)
    eventually(lambda: queue.depth == 0)
    for number in range(1, 5):
        queue.post(number)
    thread, _ = in_thread(queue.post, "first")
    eventually(lambda: queue.stats().waiting == 1)
    step.release()
    eventually(lambda: queue.depth == 3)
    with pytest.raises(QueueFull):
        queue.post("second", wait_s=0)
    step.release(2)
    eventually(lambda: queue.stats().waiting == 0)
    queue.post("third", wait_s=0)
    step.release(10)
    thread.join(WAIT_S)
    assert queue.close()
    assert applied == [0, 1, 2, 3, 4, "first", "third"]


def test_who_gives_up_waiting_leaves_the_way_free() -> None:
    held = Held()
    queue = filled(held)
    thread, outcome = in_thread(lambda: queue.post("impatient", wait_s=0.05))
    thread.join(WAIT_S)
    assert isinstance(outcome[0], QueueFull)
    held.go.set()
    eventually(lambda: queue.depth == 0)
    queue.post(5, wait_s=0)
    assert queue.close()
    assert held.applied == [0, 1, 2, 3, 4, 5]


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


def test_a_capacity_of_one_lets_one_wait_at_a_time() -> None:
    applied: list[int] = []
    with SingularUpdateQueue(applied.append, capacity=1) as queue:
        for number in range(500):
            queue.post(number)
    assert applied == list(range(500))


class Interrupting:
    """Stands in for a part of the queue, and is interrupted by Ctrl-C when it is used the ``nth`` time."""

    def __init__(self, call: Callable[..., Any], nth: int = 1) -> None:
        self.call = call
        self.left = nth

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return self.call(*arguments, **options)


def test_an_interrupt_while_waiting_for_room_withdraws_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lock:
        def __init__(self) -> None:
            self.acquire = Interrupting(bool, 2)  # the first time it takes its own lock

        def locked(self) -> bool:
            return False

    held = Held()
    queue = filled(held)
    with monkeypatch.context() as patch:
        patch.setattr(gate, "threading", SimpleNamespace(Lock=Lock, TIMEOUT_MAX=threading.TIMEOUT_MAX))
        with pytest.raises(KeyboardInterrupt):
            queue.post("interrupted")
    assert queue.stats().waiting == 0
    held.go.set()
    eventually(lambda: queue.depth == 0)
    queue.post(5, wait_s=0)
    assert queue.close()
    assert held.applied == [0, 1, 2, 3, 4, 5]


def test_an_interrupt_while_letting_in_loses_nobody_and_doubles_nobody() -> None:
    """Whichever producer it is that finds, when it comes, that there is room again may be the main thread."""
    held = Held()
    queue = filled(held)
    threads = []
    for number in range(5, 8):
        threads.append(in_thread(queue.post, number)[0])
        eventually(lambda number=number: queue.stats().waiting == number - 4)
    gate_ = queue._gate
    first = gate_._waiting[0]
    first.wake, wake = Interrupting(first.wake), first.wake
    gate_.capacity += 1
    with pytest.raises(KeyboardInterrupt):
        gate_.relieve()
    gate_.capacity -= 1
    first.wake = wake
    assert queue.depth == 5
    held.go.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert queue.close()
    assert held.applied == list(range(8))


def test_an_interrupted_close_can_be_repeated_and_refuses_all_who_wait() -> None:
    held = Held()
    queue = filled(held)
    waits = [in_thread(queue.post, number) for number in range(5, 8)]
    eventually(lambda: queue.stats().waiting == 3)
    second = queue._gate._waiting[1]
    second.wake = Interrupting(second.wake)
    with pytest.raises(KeyboardInterrupt):
        queue.close()
    held.go.set()
    assert queue.close()
    for thread, _ in waits:
        thread.join(WAIT_S)
    assert [type(outcome[0]) for _, outcome in waits] == [QueueClosed] * 3
    assert queue.stats().refused == 3
