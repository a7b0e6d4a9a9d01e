"""Deadlines, a bounded queue, closing, asyncio, forks."""

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
from held import WAIT_S, Clock, Held, Told, in_thread
from tasks import until

from leaderq.errors import DeadlineExceeded, QueueClosed, QueueFull
from leaderq.singular import SingularUpdateQueue, mailbox
from leaderq.testing import eventually


@pytest.mark.parametrize("drain", [True, False])
def test_many_threads_may_close_at_once(drain: bool) -> None:
    told = Told()
    queue = SingularUpdateQueue(lambda n: n, on_error=told)
    for number in range(200):
        queue.post(number)
    closing = [in_thread(lambda: queue.close(drain=drain)) for _ in range(8)]
    for thread, _ in closing:
        thread.join(WAIT_S)
    assert [outcome for _, outcome in closing] == [[True]] * 8
    stats = queue.stats()
    assert stats.accepted == 200 == stats.applied + stats.cancelled
    assert len(told.errors) == stats.cancelled


@pytest.mark.parametrize("drain", [True, False])
def test_the_handler_may_close_its_own_queue(drain: bool) -> None:
    closed: list[bool] = []
    told = Told()

    def handle(letter: str) -> str:
        held(letter)
        if letter == "close":
            closed.append(queue.close(drain=drain))
        return letter

    held = Held()
    queue = SingularUpdateQueue(handle, on_error=told)
    first = queue.submit("close")
    queue.post("after")
    held.go.set()
    assert first.result(WAIT_S) == "close"
    assert queue.close()
    assert closed == [False]
    assert held.applied == (["close", "after"] if drain else ["close"])
    assert [request for request, _ in told.errors] == ([] if drain else ["after"])


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_handler_that_wants_out_ends_the_queue_and_all_are_told(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    held, told = Held(), Told()
    closed: list[bool] = []

    def listen(request: object, error: BaseException) -> None:
        closed.append(queue.is_closed)  # before anybody hears of it, and posts more
        told(request, error)

    queue = SingularUpdateQueue(held, on_error=listen, name="q")
    error = kind("out")
    first, second = queue.submit(error), queue.submit("b")
    queue.post("c")
    held.go.set()
    with pytest.raises(kind):
        first.result()
    with pytest.raises(CancelledError):
        second.result()
    assert not queue.close()
    assert queue.failure is error
    with pytest.raises(QueueClosed) as caught:
        queue.post("late")
    assert caught.value.__cause__ is error
    assert [request for request, _ in told.errors] == [error, "b", "c"]
    assert closed == [True] * 3
    assert "queue gave up name=q" in caplog.text
    assert held.applied == []


AT_EXIT = """
import sys, threading
from leaderq.singular import SingularUpdateQueue, writer
held, begun = threading.Event(), threading.Event()
def apply(n):
    if n < 0:
        begun.set()
        held.wait()
    print(n, flush=True)
if sys.argv[1] == "stuck":
    writer.AT_EXIT_S = 0.1
queue = SingularUpdateQueue(apply, name="forgotten")
queue.post(-1 if sys.argv[1] == "stuck" else 0)
for n in range(1, 4):
    queue.post(n)
if sys.argv[1] == "stuck":
    begun.wait()
"""


def test_a_forgotten_queue_is_drained_when_the_interpreter_exits() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT, "quick"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    assert done.stdout.split() == ["0", "1", "2", "3"]
    assert done.stderr == ""


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
            with queue:
                pass

        in_child(refused)
        queue.post("d")
        held.go.set()
    assert held.applied == ["a", "b", "d"]


# -- A request that is not begun by its deadline is not begun at all, and nobody is left to guess


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


# -- A bounded queue: who waits for room, who is refused, and in which order they get in


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


def test_an_interrupt_of_who_waits_for_room_withdraws_its_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    held = Held()
    queue = filled(held)
    with monkeypatch.context() as patch:
        patch.setattr(mailbox.Waker, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            queue.post("interrupted")
    assert queue.stats().waiting == 0
    held.go.set()
    eventually(lambda: queue.depth == 0)
    queue.post(5, timeout_s=0)
    assert queue.close()
    assert held.applied == [0, 1, 2, 3, 4, 5]


# -- in asyncio: tickets can be awaited, and a full queue does not block the loop


def test_a_ticket_can_be_awaited_gathered_and_wrapped() -> None:
    async def use(queue: SingularUpdateQueue[int, int]) -> None:
        assert await queue.submit(1) == 2
        assert await asyncio.wrap_future(queue.submit(2)) == 3
        assert await asyncio.gather(*(queue.submit(number) for number in range(50))) == list(
            range(1, 51)
        )
        assert await asyncio.wait_for(queue.submit(3), WAIT_S) == 4
        assert await queue.call(5) == 6

    with SingularUpdateQueue(lambda n: n + 1) as queue:
        asyncio.run(use(queue))


def test_cancelling_the_task_cancels_the_request_unless_it_is_begun() -> None:
    held = Held()

    async def use(queue: SingularUpdateQueue[str, str]) -> None:
        tasks = [asyncio.create_task(queue.call(letter)) for letter in "abc"]
        await asyncio.to_thread(held.begun.wait, WAIT_S)
        tasks[1].cancel()
        with pytest.raises(asyncio.CancelledError):
            await tasks[1]
        held.go.set()
        assert await tasks[0] == "a"
        assert await tasks[2] == "c"

    with SingularUpdateQueue(held) as queue:
        asyncio.run(use(queue))
    assert held.applied == ["a", "c"]
    assert queue.stats().cancelled == 1


def test_the_loop_goes_on_while_a_call_waits_for_room() -> None:
    held = Held()

    async def use(queue: SingularUpdateQueue[int, int]) -> None:
        tasks = [asyncio.create_task(queue.call(number)) for number in range(6)]
        await until(lambda: held.begun.is_set() and queue.stats().waiting == 6 - 2 - 1)
        with pytest.raises(QueueFull):
            await queue.call(9, timeout_s=0.001)
        with pytest.raises(QueueFull):
            await queue.call(9, timeout_s=0)
        held.go.set()
        assert await asyncio.gather(*tasks) == list(range(6))

    with SingularUpdateQueue(held, capacity=2) as queue:
        asyncio.run(use(queue))
    assert sorted(held.applied) == list(range(6))


def test_a_task_cancelled_while_it_waits_for_room_leaves_nothing_behind() -> None:
    held = Held()

    async def use(queue: SingularUpdateQueue[str, str]) -> None:
        queue.post("a")
        await asyncio.to_thread(held.begun.wait, WAIT_S)
        queue.post("b")
        task = asyncio.create_task(queue.call("c"))
        await until(lambda: queue.stats().waiting)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert queue.stats().waiting == 0

    with SingularUpdateQueue(held, capacity=1) as queue:
        asyncio.run(use(queue))
        held.go.set()
    assert held.applied == ["a", "b"]
