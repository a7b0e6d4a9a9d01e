"""The coordinator for tasks: waiting, sharing, cancellation at every moment, and threads beside
them.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import threading

import pytest

from leaderq.clock import now_s
from leaderq.coalescing import (
    AsyncQueueCoordinator,
    Debounce,
    EnqueueOutcome,
    QueueCoordinator,
    Refusal,
    TokenStage,
    TrafficState,
)
from leaderq.errors import CoordinatorClosed, WaitTimedOut, WouldDeadlock
from leaderq.testing import eventually


async def until(fact) -> None:
    """Wait for a fact without holding up the loop."""
    ends_s = now_s() + 60
    while not fact():
        assert now_s() < ends_s, "it never came true"
        await asyncio.sleep(0.005)


def test_one_task_runs_one_waits_and_the_rest_are_declined():
    async def main() -> None:
        coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator()
        first = await coordinator.enqueue("k")
        second = asyncio.create_task(coordinator.enqueue("k"))
        await until(lambda: coordinator.coordinator.state("k") is TrafficState.BLOCK)
        third = await asyncio.create_task(coordinator.enqueue("k"))
        assert third.refusal is Refusal.FULL
        assert coordinator.dequeue(first)
        token = await second
        assert token and token.outcome is EnqueueOutcome.BLOCK and token.covers == 1
        assert coordinator.dequeue(token)
        assert await coordinator.drain(5) == ()

    asyncio.run(main())


def test_a_task_cancelled_while_it_waits_leaves_the_line():
    async def main() -> None:
        coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator()
        first = await coordinator.enqueue("k")
        second = asyncio.create_task(coordinator.enqueue("k"))
        await until(lambda: coordinator.coordinator.state("k") is TrafficState.BLOCK)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert coordinator.coordinator.state("k") is TrafficState.PROCESS and first

    asyncio.run(main())


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


def test_a_task_waits_no_longer_than_it_may():
    async def main() -> None:
        coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator()
        first = await coordinator.enqueue("k")
        with pytest.raises(WaitTimedOut):
            await asyncio.create_task(coordinator.enqueue("k", timeout_s=0.01))
        assert first

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


def test_the_cancellation_of_whoever_runs_is_not_shared_another_runs_instead():
    async def main() -> None:
        coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator(waiters=0)

        async def hang() -> str:
            await asyncio.Event().wait()
            return "never"

        async def work() -> str:
            return "done"

        first = asyncio.create_task(coordinator.run("k", hang))
        await until(lambda: coordinator.coordinator.state("k") is TrafficState.PROCESS)
        others = [asyncio.create_task(coordinator.run("k", work)) for _ in range(3)]
        await until(lambda: coordinator.coordinator.stats().declined == 3)
        first.cancel()
        assert await asyncio.gather(*others) == ["done"] * 3
        assert first.cancelled()

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


def test_threads_and_tasks_compete_for_the_same_key():
    shared: QueueCoordinator[str] = QueueCoordinator()
    inside = []
    faults = []

    def in_a_thread() -> None:
        for _ in range(100):
            with shared.hold("k") as token:
                if token:
                    inside.append(1)
                    faults.extend([1] * (len(inside) > 1))
                    inside.pop()

    async def in_a_task(coordinator: AsyncQueueCoordinator[str]) -> None:
        for _ in range(100):
            async with coordinator.hold("k") as token:
                if token:
                    inside.append(1)
                    faults.extend([1] * (len(inside) > 1))
                    inside.pop()
            await asyncio.sleep(0)

    async def main() -> None:
        coordinator = AsyncQueueCoordinator(shared)
        threads = [threading.Thread(target=in_a_thread) for _ in range(4)]
        for each in threads:
            each.start()
        await asyncio.gather(*(in_a_task(coordinator) for _ in range(10)))
        for each in threads:
            await asyncio.to_thread(each.join)
        assert await coordinator.drain(10) == ()

    asyncio.run(main())
    assert not faults


def test_cancellations_at_random_leave_no_key_behind():
    async def main() -> None:
        coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator(waiters=2)
        running = dict.fromkeys("ab", 0)

        async def live() -> None:
            for _ in range(30):
                key = random.choice("ab")
                async with coordinator.hold(key) as token:
                    if token:
                        running[key] += 1
                        assert running[key] == 1
                        try:
                            await asyncio.sleep(random.choice([0, 0, 0.000_1]))
                        finally:
                            running[key] -= 1
                await asyncio.sleep(0)

        for _ in range(20):
            tasks = [asyncio.create_task(live()) for _ in range(20)]
            for each in random.sample(tasks, 15):
                await asyncio.sleep(random.choice([0, 0.000_1]))
                each.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(each) for each in results} <= {type(None), asyncio.CancelledError}
        counters = coordinator.coordinator.stats()
        assert (counters.running, counters.waiting) == (0, 0)

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


def test_those_who_wait_are_told_when_all_is_closed():
    async def main() -> None:
        async with AsyncQueueCoordinator() as coordinator:
            head = await coordinator.enqueue("k")
            waits = asyncio.create_task(coordinator.enqueue("k"))
            await until(lambda: coordinator.coordinator.state("k") is TrafficState.BLOCK)
            assert await coordinator.drain(0.01) == (head,)
            with pytest.raises(CoordinatorClosed):
                await waits
            coordinator.dequeue(head)

    asyncio.run(main())


def test_of_debounced_tasks_one_runs_once_it_is_quiet():
    async def main() -> None:
        now = [0.0]
        shared: QueueCoordinator[str] = QueueCoordinator(
            debounce=Debounce(1, 5), clock=lambda: now[0], background=False
        )
        coordinator = AsyncQueueCoordinator(shared)
        tasks = [asyncio.create_task(coordinator.enqueue("k")) for _ in range(20)]
        await until(lambda: shared.stats().declined == 19)
        now[0] = 1.0
        shared.sweep()
        assert sum(map(bool, await asyncio.gather(*tasks))) == 1

    asyncio.run(main())


def test_the_rules_of_a_given_coordinator_stand():
    with pytest.raises(TypeError, match="waiters"):
        AsyncQueueCoordinator(QueueCoordinator(), waiters=3)


def test_a_withdrawn_task_is_withdrawn_once():
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    head = coordinator.enqueue("k", owner=None)

    async def main() -> None:
        task = asyncio.create_task(AsyncQueueCoordinator(coordinator).enqueue("k"))
        await until(lambda: coordinator.state("k") is TrafficState.BLOCK)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert coordinator.stats().withdrawn == 1
    assert head.stage is TokenStage.RUNNING
    eventually(lambda: coordinator.dequeue(head))
