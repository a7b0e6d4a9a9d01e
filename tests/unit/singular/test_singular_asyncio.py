"""In asyncio: tickets can be awaited, and a full queue does not block the loop."""

from __future__ import annotations

import asyncio

import pytest
from held import WAIT_S, Held
from tasks import until

from leaderq.errors import QueueFull
from leaderq.singular import SingularUpdateQueue


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
