"""In asyncio: tickets can be awaited, and a full queue does not block the loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from held import WAIT_S, Held, Told

from leaderq.clock import now_s
from leaderq.errors import DeadlineExceeded, QueueClosed, QueueFull
from leaderq.singular import SingularUpdateQueue


async def until(fact: Callable[[], object]) -> None:
    """Wait for a fact, looked at on the loop, without holding the loop up. (What is asked of a
    thread comes back by ``call_soon_threadsafe``, with which a test plays.)
    """
    ends_s = now_s() + WAIT_S
    while not fact():
        assert now_s() < ends_s
        await asyncio.sleep(0.001)


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


def test_an_error_reaches_who_awaits() -> None:
    async def use(queue: SingularUpdateQueue[int, float]) -> None:
        with pytest.raises(ZeroDivisionError):
            await queue.submit(0)
        with pytest.raises(ZeroDivisionError):
            await queue.call(0)

    with SingularUpdateQueue(lambda n: 1 / n, on_error=Told()) as queue:
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


def test_the_loop_goes_on_while_a_post_waits_for_room_and_nobody_waits_for_its_outcome() -> None:
    held = Held()

    async def use(queue: SingularUpdateQueue[int, int]) -> None:
        await queue.apost(0)
        await until(held.begun.is_set)
        await queue.apost(1)
        assert held.applied == []
        task = asyncio.create_task(queue.apost(2))
        await until(lambda: queue.stats().waiting == 1)
        with pytest.raises(QueueFull):
            await queue.apost(9, timeout_s=0.001)
        held.go.set()
        await task
        await queue.apost(3, deadline_s=0)

    with SingularUpdateQueue(held, capacity=1, on_error=(told := Told())) as queue:
        asyncio.run(use(queue))
    assert held.applied == [0, 1, 2]
    assert told.kinds == [(3, DeadlineExceeded)]


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


def test_closing_refuses_a_call_that_waits_for_room() -> None:
    held = Held()

    async def use(queue: SingularUpdateQueue[str, str]) -> None:
        queue.post("a")
        await asyncio.to_thread(held.begun.wait, WAIT_S)
        queue.post("b")
        task = asyncio.create_task(queue.call("c"))
        await until(lambda: queue.stats().waiting)
        assert not queue.close(timeout_s=0)
        with pytest.raises(QueueClosed):
            await task

    with SingularUpdateQueue(held, capacity=1) as queue:
        asyncio.run(use(queue))
        held.go.set()


def test_a_loop_that_ended_while_its_task_waited_for_room_does_not_hurt_the_writer() -> None:
    held = Held()

    async def use(queue: SingularUpdateQueue[str, str]) -> None:
        queue.post("a")
        await asyncio.to_thread(held.begun.wait, WAIT_S)
        queue.post("b")
        loop = asyncio.get_running_loop()
        call_soon, now_s = loop.call_soon_threadsafe, loop.time
        woken_in_vain = threading.Event()

        def as_if_closed(*_: object) -> None:
            loop.call_soon_threadsafe = call_soon  # type: ignore[method-assign, assignment]
            woken_in_vain.set()
            raise RuntimeError("Event loop is closed")

        task = asyncio.create_task(queue.call("c", timeout_s=3600))
        await until(lambda: queue.stats().waiting)
        loop.call_soon_threadsafe = as_if_closed  # type: ignore[method-assign, assignment]
        held.go.set()
        await until(woken_in_vain.is_set)
        loop.time = lambda: now_s() + 3600  # type: ignore[method-assign]
        assert await task == "c"  # its time to wait ended, and then it found that it was in

    with SingularUpdateQueue(held, capacity=1) as queue:
        asyncio.run(use(queue))
    assert held.applied == ["a", "b", "c"]


def test_who_awaits_learns_of_a_missed_deadline_though_the_writer_is_busy() -> None:
    held = Held()

    async def use(queue: SingularUpdateQueue[str, str]) -> None:
        queue.post("a")
        with pytest.raises(DeadlineExceeded):
            await queue.call("b", deadline_s=0.01)
        held.go.set()
        assert await queue.call("c", deadline_s=WAIT_S) == "c"

    with SingularUpdateQueue(held, on_error=Told()) as queue:
        asyncio.run(use(queue))
    assert held.applied == ["a", "c"]


def test_queues_serve_several_loops() -> None:
    async def use(queue: SingularUpdateQueue[int, int]) -> list[int]:
        return list(await asyncio.gather(*(queue.call(number) for number in range(20))))

    with SingularUpdateQueue(lambda n: n, capacity=4) as queue:
        for _ in range(3):
            assert asyncio.run(use(queue)) == list(range(20))
