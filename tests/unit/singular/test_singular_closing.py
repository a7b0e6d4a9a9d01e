"""A bounded queue, closing, asyncio, forks."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import CancelledError
from typing import Any

import pytest
from forks import in_child
from held import WAIT_S, Held, Told, in_thread
from tasks import until

from leaderq.errors import QueueClosed, QueueFull, WouldDeadlock
from leaderq.singular import SingularUpdateQueue
from leaderq.testing import eventually
from leaderq.threads import inbox


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("max_batch", [None, 1])
def test_h11_a_handler_that_wants_out_ends_the_queue_and_all_are_told(kind, max_batch, caplog):
    """The queue is closed before anybody hears of it, and so before anybody posts more."""
    held, told = Held(), Told()
    closed: list[bool] = []

    def listen(request: object, error: BaseException) -> None:
        closed.append(queue.is_closed)
        told(request, error)

    def handle(given: Any) -> Any:
        return held(given if max_batch is None else given[0])

    queue = SingularUpdateQueue(handle, on_error=listen, name="q", max_batch=max_batch)
    error = kind("out")
    first, second = queue.submit(error), queue.submit("b")
    first.add_done_callback(lambda _: closed.append(queue.is_closed))
    queue.post("c")
    held.go.set()
    with pytest.raises(kind):
        first.result()
    with pytest.raises(QueueClosed) as caught:
        queue.post("late")
    assert caught.value.__cause__ is error is queue.failure
    with pytest.raises(CancelledError):
        second.result()
    assert not queue.close()
    assert [request for request, _ in told.errors] == [error, "b", "c"]
    assert closed == [True] * 4
    assert "queue gave up name=q" in caplog.text
    assert held.applied == []


def test_a_forgotten_queue_is_drained_when_the_interpreter_exits() -> None:
    program = """if True:
        from leaderq.singular import SingularUpdateQueue
        queue = SingularUpdateQueue(lambda n: print(n, flush=True))
        for n in range(4):
            queue.post(n)"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=WAIT_S, check=True
    )
    assert (done.stdout.split(), done.stderr) == (["0", "1", "2", "3"], "")


@pytest.mark.parametrize("capacity", [None, 2])
def test_a_child_is_refused_and_the_parent_goes_on(capacity: int | None) -> None:
    held = Held()
    parent = os.getpid()
    with SingularUpdateQueue(held, capacity=capacity) as queue:
        first, second = queue.submit("a"), queue.submit("b")
        assert held.begun.wait(WAIT_S)

        def refused() -> None:
            for use in (
                queue.post,
                queue.submit,
                lambda _: first.result(),
                lambda _: second.exception(WAIT_S),
            ):
                with pytest.raises(QueueClosed, match=f"belongs to process {parent}"):
                    use("c")
            assert queue.is_closed
            assert not queue.close(timeout_s=WAIT_S)

        in_child(refused)
        queue.post("d")
        held.go.set()
    assert held.applied == ["a", "b", "d"]


def filled(handler: Any, **options: Any) -> SingularUpdateQueue[Any, Any]:
    """A queue of capacity 4, with ``0`` in hand and 1 to 4 waiting."""
    queue: SingularUpdateQueue[Any, Any] = SingularUpdateQueue(handler, capacity=4, **options)
    queue.post(0)
    eventually(lambda: queue.stats().in_hand == 1 and queue.depth == 0)
    for number in range(1, 5):
        queue.post(number)
    return queue


def test_f6_producers_get_in_in_the_order_of_coming_as_soon_as_there_is_room() -> None:
    may, applied = threading.Semaphore(0), list[Any]()
    queue = filled(lambda request: may.acquire(timeout=WAIT_S) and applied.append(request))
    threads = []
    for number in range(5, 12):
        threads.append(in_thread(queue.post, number)[0])
        eventually(lambda number=number: queue.stats().waiting == number - 4)
    for _ in range(3):
        may.release()
        with pytest.raises(QueueFull):
            queue.post("newcomer", timeout_s=0)
    may.release(20)
    for thread in threads:
        thread.join(WAIT_S)
    assert queue.close()
    assert applied == list(range(12))
    assert SingularUpdateQueue(print).capacity == 10_000


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


def test_f12_an_interrupt_of_who_waits_for_room_withdraws_its_request(monkeypatch) -> None:
    """F11: a signal handler that interrupts the search for room is refused without it."""
    held = Held()
    queue = filled(held)

    def interrupted(*_: object) -> None:
        with queue._inbox._lock, pytest.raises(WouldDeadlock, match="interrupts its own thread"):
            queue.post("by a signal handler")
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(inbox.Waker, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.post("interrupted")
    assert queue.stats().waiting == 0
    held.go.set()
    eventually(lambda: queue.depth == 0)
    with queue._inbox._lock:
        queue.post(5)
    assert queue.close()
    assert held.applied == [0, 1, 2, 3, 4, 5]


def test_f5_cancelling_the_task_cancels_the_request_unless_it_is_begun() -> None:
    held = Held()

    async def use(queue: SingularUpdateQueue[str, str]) -> None:
        tasks = [asyncio.create_task(queue.call(letter)) for letter in "abcd"]
        await until(lambda: held.begun.is_set() and queue.stats().waiting)
        for timeout_s in (0, 0.001):
            with pytest.raises(QueueFull):
                await queue.call("e", timeout_s=timeout_s)
        for task in tasks[1], tasks[3]:  # the last one waits for room
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert queue.stats().waiting == 0
        held.go.set()
        assert await tasks[0] == "a"
        assert await tasks[2] == "c"

    with SingularUpdateQueue(held, capacity=2) as queue:
        asyncio.run(use(queue))
    assert held.applied == ["a", "c"]
    assert queue.stats().cancelled == 1


@pytest.mark.parametrize("drain", [True, False])
def test_many_threads_and_the_handler_itself_may_close_at_once(drain: bool) -> None:
    told, by_handler = Told(), list[bool]()

    def handle(number: int) -> None:
        if number == 50:
            by_handler.append(queue.close(drain=drain))

    queue = SingularUpdateQueue(handle, on_error=told)
    for number in range(200):
        queue.post(number)
    closing = [in_thread(lambda: queue.close(drain=drain)) for _ in range(8)]
    for thread, _ in closing:
        thread.join(WAIT_S)
    assert [outcome for _, outcome in closing] == [[True]] * 8
    stats = queue.stats()
    assert stats.accepted == 200 == stats.applied + stats.cancelled
    assert len(told.errors) == stats.cancelled <= (0 if drain else 200)
    assert by_handler == [False] or (not by_handler and not drain)
