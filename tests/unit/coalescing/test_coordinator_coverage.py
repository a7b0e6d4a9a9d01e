"""A declined request is always covered: if the waiter that stood for it gives up, somebody else
runs for it, and begins after the declined request came.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from tasks import until

from leaderq.coalescing import (
    AsyncQueueCoordinator,
    EnqueueOutcome,
    QueueCoordinator,
    Refusal,
    TrafficState,
)


class Origin:
    """What is refreshed: a run copies the origin as it is when the run begins."""

    def __init__(self) -> None:
        self.version = 0
        self.cache = -1
        self.runs = 0
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Semaphore(0)

    def refresh(self, *_: object) -> int:
        seen = self.version
        self.runs += 1
        self.begun.release()
        assert self.may_end.acquire(timeout=120)
        self.cache = seen
        return seen


def given_up(coordinator: QueueCoordinator[str], origin: Origin) -> None:
    """While somebody runs: another one waits, a third is declined for its sake, and it gives up."""
    waiter = coordinator.offer("k", lambda token: None)
    assert waiter.outcome is EnqueueOutcome.BLOCK
    origin.version += 1
    assert coordinator.offer("k", print).refusal is Refusal.FULL
    coordinator.dequeue(waiter)


@pytest.mark.parametrize("form", ["coalesced", "run", "shared"])
def test_whoever_runs_by_its_function_runs_again_and_returns_its_first_result(pool, form):
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    origin = Origin()
    call: Callable[[], object]
    if form == "run":
        call = lambda: coordinator.run("k", origin.refresh)  # noqa: E731
    else:
        decorated = coordinator.coalesced(key=lambda: "k", share=form == "shared")
        call = decorated(lambda: origin.refresh())
    head = pool.submit(call)
    assert origin.begun.acquire(timeout=60)
    given_up(coordinator, origin)
    assert coordinator.stats().owed == 1
    origin.may_end.release(2)
    assert head.result(60) == 0
    assert (origin.cache, origin.runs, coordinator.stats().repeated) == (1, 2, 1)
    assert coordinator.state("k") is TrafficState.INIT and coordinator.stats().owed == 0


def test_cover_is_called_with_the_key_held_when_the_head_leaves():
    origin, held = Origin(), []

    def cover(key: str) -> None:
        held.append((key, coordinator.state(key)))
        origin.refresh()

    coordinator: QueueCoordinator[str] = QueueCoordinator(cover=cover)
    origin.may_end.release(2)
    with coordinator.hold("k") as token:
        assert token
        origin.refresh()
        given_up(coordinator, origin)
    assert held == [("k", TrafficState.PROCESS)]
    assert origin.cache == 1 and coordinator.state("k") is TrafficState.INIT


def test_a_cover_that_fails_is_logged_and_gives_the_key_back(caplog):
    coordinator: QueueCoordinator[str] = QueueCoordinator(cover=lambda key: 1 / 0)
    with coordinator.hold("k"):
        given_up(coordinator, Origin())
    assert "ZeroDivisionError" in caplog.text
    assert coordinator.state("k") is TrafficState.INIT


@pytest.mark.parametrize("form", ["coalesced", "hold"])
@pytest.mark.parametrize("when", ["waits", "runs"])
def test_a_cancelled_task_leaves_no_stale_cache(form, when):
    async def main() -> None:
        version, cache = 0, -1
        go = asyncio.Event()

        async def refresh(key: str) -> None:
            nonlocal cache
            seen = version
            await go.wait()
            cache = seen

        cover = refresh if form == "hold" else None
        coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator(cover=cover)
        coalesced = coordinator.coalesced(key=lambda key: key)(refresh)

        async def held(key: str) -> None:
            async with coordinator.hold(key) as token:
                if token:
                    await refresh(key)

        work = coalesced if form == "coalesced" else held
        stats = coordinator.coordinator.stats
        first = asyncio.create_task(work("k"))
        await until(lambda: stats().running)
        second = asyncio.create_task(work("k"))
        await until(lambda: stats().waiting)
        version = 3
        await asyncio.create_task(work("k"))  # declined, because the second begins later
        assert stats().declined == 1
        if when == "waits":
            second.cancel()
        else:
            first.add_done_callback(lambda _: second.cancel())
        go.set()
        await asyncio.gather(first, second, return_exceptions=True)
        if when == "waits":
            assert second.cancelled()
        await until(lambda: cache == 3)
        assert await coordinator.drain(10) == ()

    asyncio.run(main())
