"""The coordinator for tasks: waiting, sharing, cancellation at every moment, and threads beside
them.
"""

from __future__ import annotations

import asyncio
import itertools

import pytest
from tasks import until

from leaderq.coalescing import (
    AsyncQueueCoordinator,
    QueueCoordinator,
    TrafficState,
)
from leaderq.errors import WouldDeadlock


def test_a_task_cancelled_just_when_its_turn_has_come_gives_it_to_the_next():
    async def main() -> None:
        coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator(waiters=2)
        first = await coordinator.enqueue("k")
        second = asyncio.create_task(coordinator.enqueue("k"))
        await until(lambda: coordinator.coordinator.stats().waiting == 1)
        third = asyncio.create_task(coordinator.enqueue("k"))
        await until(lambda: coordinator.coordinator.stats().waiting == 2)
        coordinator.dequeue(first)  # it is the second's turn, which has not heard of it yet
        second.cancel()
        token = await third
        assert token and second.cancelled()
        coordinator.dequeue(token)
        assert coordinator.coordinator.state("k") is TrafficState.INIT

    asyncio.run(main())


def test_a_task_that_would_wait_for_itself_is_told_and_another_task_is_not_it():
    async def main() -> None:
        coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator()
        async with coordinator.hold("k") as token:
            assert token
            with pytest.raises(WouldDeadlock):
                await coordinator.enqueue("k")
            other = asyncio.create_task(coordinator.enqueue("k"))
            await until(lambda: coordinator.coordinator.state("k") is TrafficState.BLOCK)
        assert await other

    asyncio.run(main())


def test_tasks_share_a_result_and_an_exception():
    async def main() -> None:
        coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator(waiters=0)
        runs = itertools.count()

        async def load() -> int:
            await until(lambda: coordinator.coordinator.stats().declined == 9)
            return next(runs)

        assert await asyncio.gather(*(coordinator.run("k", load) for _ in range(10))) == [0] * 10

        async def fail() -> None:
            await until(lambda: coordinator.coordinator.stats().declined == 13)
            raise KeyError("gone")

        errors = await asyncio.gather(
            *(coordinator.run("k", fail) for _ in range(5)), return_exceptions=True
        )
        assert [type(error) for error in errors] == [KeyError] * 5

    asyncio.run(main())


def test_a_decorated_coroutine_function_is_coalesced():
    async def main() -> None:
        coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator(waiters=0)
        go = asyncio.Event()

        @coordinator.coalesced(key=lambda name: name, declined="declined")
        async def refresh(name: str) -> str:
            await go.wait()
            return name

        @coordinator.coalesced(key=lambda name: name, share=True)
        async def load(name: str) -> str:
            await asyncio.sleep(0)
            return name

        first = asyncio.create_task(refresh("a"))
        await until(lambda: coordinator.coordinator.state("a") is TrafficState.PROCESS)
        assert await asyncio.create_task(refresh("a")) == "declined"
        go.set()
        assert await first == "a"
        assert await asyncio.gather(*(load("b") for _ in range(3))) == ["b"] * 3

    asyncio.run(main())


def test_a_loop_that_is_closed_while_its_task_waits_holds_up_nobody(caplog):
    coordinator: QueueCoordinator[str] = QueueCoordinator(waiters=2)
    head = coordinator.enqueue("k")
    loop = asyncio.new_event_loop()
    task = loop.create_task(AsyncQueueCoordinator(coordinator).enqueue("k"))
    loop.run_until_complete(asyncio.sleep(0))
    assert coordinator.state("k") is TrafficState.BLOCK
    next_one = coordinator.offer("k", lambda token: None)
    loop.close()
    task._log_destroy_pending = False
    assert coordinator.dequeue(head)
    assert next_one and "event loop closed while a task waited" in caplog.text
