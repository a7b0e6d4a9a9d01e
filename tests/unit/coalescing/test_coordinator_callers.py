"""Who asks a coordinator: a hundred threads, tasks, rude users; and whoever was declined."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextvars import Context

import pytest
from forks import in_child
from tasks import busy_default_executor, until

from leaderq import coalescing
from leaderq.base.arguments import NotAPlainFunction
from leaderq.coalescing import AsyncQueueCoordinator, QueueCoordinator, TrafficState
from leaderq.errors import WaitTimedOut, WouldDeadlock
from leaderq.testing.waiting import patience


def test_a_task_cancelled_just_when_its_turn_has_come_gives_it_to_the_next():
    async def main() -> None:
        coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator()
        first = await coordinator.enqueue("k")
        second = asyncio.create_task(coordinator.enqueue("k"))
        await until(lambda: coordinator.stats().waiting == 1)
        coordinator.dequeue(first)  # it is the second's turn, which has not heard of it yet
        third = coordinator.coordinator.offer("k", lambda token: None)
        assert not third
        second.cancel()
        await until(lambda: third)
        assert second.cancelled()
        coordinator.dequeue(third)
        assert coordinator.coordinator.state("k") is TrafficState.INIT

    asyncio.run(main())


@pytest.mark.parametrize("form", ["itself", "thread", "task of a task"])
def test_h8_a_run_that_would_wait_for_itself_is_told(form: str) -> None:
    async def main() -> None:
        coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator(timeout_s=None)

        async def again() -> object:
            return await coordinator.run("k", work)

        async def work() -> object:
            if form == "itself":
                return await again()
            if form == "thread":
                return await asyncio.to_thread(coordinator.coordinator.run, "k", list)
            return await asyncio.create_task(asyncio.wait_for(again(), None))

        async def list_later() -> list[int]:
            return []

        with pytest.raises(WouldDeadlock):
            await coordinator.run("k", work)
        assert coordinator.stats().running == coordinator.stats().waiting == 0
        assert await coordinator.run("k", list_later) == []  # this task's, and long over

    asyncio.run(main())


def test_a_task_for_which_the_run_does_not_wait_may_wait_for_it() -> None:
    async def main() -> None:
        coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator()
        other: list[asyncio.Task[object]] = []

        async def work() -> None:
            other.append(Context().run(asyncio.create_task, coordinator.enqueue("k")))
            await until(lambda: coordinator.coordinator.state("k") is TrafficState.BLOCK)

        await coordinator.run("k", work)
        assert await other[0]

    asyncio.run(main())


def test_decorated_coroutine_functions_share_results_and_exceptions():
    async def main() -> None:
        coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator(waiters=0)

        @coordinator.coalesced(key=lambda name: name, share=True)
        async def load(name: str) -> str:
            await asyncio.sleep(0)
            return {"b": "found"}[name]

        assert await asyncio.gather(*(load("b") for _ in range(3))) == ["found"] * 3
        errors = await asyncio.gather(*(load("c") for _ in range(3)), return_exceptions=True)
        assert errors == [errors[0]] * 3 and type(errors[0]) is KeyError
        assert coordinator.stats().runs == 2

    asyncio.run(main())


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
    assert waiter.outcome is coalescing.EnqueueOutcome.BLOCK
    origin.version += 1
    assert coordinator.offer("k", print).is_declined
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


def test_cover_is_called_with_the_key_held_when_the_head_leaves_and_gives_it_back(caplog):
    held = []

    def cover(key: str) -> None:
        held.append((key, coordinator.state(key)))
        raise ZeroDivisionError

    coordinator: QueueCoordinator[str] = QueueCoordinator(cover=cover)
    with coordinator.hold("k"):
        given_up(coordinator, Origin())
    assert held == [("k", TrafficState.PROCESS)]
    assert "ZeroDivisionError" in caplog.text
    assert coordinator.state("k") is TrafficState.INIT and coordinator.stats().owed == 0


def test_before_any_task_has_asked_there_is_no_loop_for_cover_and_the_next_request_covers(caplog):
    async def cover(key: str) -> None:
        raise AssertionError("where?")

    coordinator = AsyncQueueCoordinator(cover=cover).coordinator
    with coordinator.hold("k"):
        given_up(coordinator, Origin())
    assert coordinator.stats().owed == 1
    assert "requests not covered yet" in caplog.text
    with coordinator.hold("k") as token:
        assert token.covers == 1


@pytest.mark.parametrize("when", ["waits", "runs"])
def test_a_cancelled_task_leaves_no_stale_cache(when):
    async def main() -> None:
        version, cache = 0, -1
        go = asyncio.Event()
        coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator()

        @coordinator.coalesced(key=lambda: "k")
        async def refresh() -> None:
            nonlocal cache
            seen = version
            await go.wait()
            cache = seen

        first = asyncio.create_task(refresh())
        await until(lambda: coordinator.stats().running)
        second = asyncio.create_task(refresh())
        await until(lambda: coordinator.stats().waiting)
        version = 3
        await asyncio.create_task(refresh())  # declined, because the second begins later
        assert coordinator.stats().declined == 1
        if when == "waits":
            second.cancel()
        else:
            first.add_done_callback(lambda _: second.cancel())
        go.set()
        await asyncio.gather(first, second, return_exceptions=True)
        await until(lambda: cache == 3)
        async with busy_default_executor(), coordinator.hold("k"):
            (stuck,) = await asyncio.wait_for(coordinator.drain(0), WAIT_S)
            assert stuck.key == "k"

    asyncio.run(main())


WAIT_S = 60.0 * patience()


class Rude(BaseException):
    """Not an Exception, and nothing that anybody expects."""


@pytest.mark.parametrize("raised", [Rude, SystemExit, asyncio.CancelledError, GeneratorExit])
def test_a_call_that_raises_anything_gives_the_key_back_and_the_one_who_called_hears_of_it(raised):
    def on_turn(_: object) -> None:
        raise raised

    coordinator: QueueCoordinator[str] = QueueCoordinator()
    head = coordinator.offer("k", print)
    coordinator.offer("k", on_turn)
    with pytest.raises(raised):
        coordinator.dequeue(head)
    assert coordinator.state("k") is TrafficState.INIT


async def later() -> None: ...


def test_a_function_that_returns_work_for_somebody_else_to_do_is_told_and_keeps_no_key(caplog):
    """As a lambda does that calls an async function: that it would is seen only when it did."""
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    decorated = coordinator.coalesced(key=lambda: "k")(lambda: (one for one in "a"))
    for call in (decorated, lambda: coordinator.run("k", lambda: later())):
        with pytest.raises(NotAPlainFunction):
            call()
    with coordinator.hold("k"):
        token = coordinator.offer("k", lambda _: later())
    assert not token and "returned" in caplog.text
    assert coordinator.state("k") is TrafficState.INIT


def test_a_forked_child_has_no_keys_whatever_its_parent_was_doing() -> None:
    coordinator: QueueCoordinator[str] = QueueCoordinator(safe_timeout_s=30)
    mine = coordinator.enqueue("mine")
    coordinator.offer("mine", print)

    def check() -> None:
        assert not mine and mine.stage is coalescing.TokenStage.ABANDONED
        assert coordinator.stats().running == coordinator.stats().waiting == 0
        with coordinator.hold("mine") as own:
            assert own.number > mine.number
            with pytest.raises(WaitTimedOut):
                coordinator.enqueue("mine", timeout_s=0.01, owner=None)
            coordinator.drain(0)

    with coordinator._keys._lock:  # as another thread may have it
        in_child(check)
    assert mine and coordinator.dequeue(mine)


def test_f10_a_hundred_threads_that_give_up_at_random_leave_no_stale_cache() -> None:
    """Of each key one runs at a time, and a run begins after the last change of all."""
    chance, keys = random.Random(30), "abc"
    versions, cache, running = Counter(keys), Counter[str](), Counter[str]()
    due = Counter[str]()
    """The newest version of those whose request ran or was declined: not of those that gave up."""
    begun_twice: list[str] = []
    changing = threading.Lock()
    coordinator: QueueCoordinator[str] = QueueCoordinator()

    def refresh(key: str) -> None:
        running[key] += 1
        if running[key] > 1:
            begun_twice.append(key)
        version = versions[key]
        time.sleep(0.0002)
        cache[key] = version
        running[key] -= 1

    def work(plan: list[tuple[str, str, float | None]]) -> None:
        for key, form, timeout_s in plan:
            with changing:
                version = versions[key] = versions[key] + 1
            try:
                if form == "run":
                    coordinator.run(key, lambda key=key: refresh(key), timeout_s=timeout_s)
                else:
                    coordinator.coalesced(key=lambda key: key)(refresh)(key)
            except WaitTimedOut:
                continue
            with changing:
                due[key] = max(due[key], version)

    forms, waits = ["run", "coalesced"], [0, 0.0003, 0.002, None]
    plans = [
        [(chance.choice(keys), chance.choice(forms), chance.choice(waits)) for _ in range(30)]
        for _ in range(100)
    ]
    threads = [threading.Thread(target=work, args=(plan,), daemon=True) for plan in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    stats = coordinator.stats()
    assert (stats.running, stats.waiting, stats.owed) == (0, 0, 0)
    assert begun_twice == []
    assert all(cache[key] >= due[key] for key in keys), (cache, due)
    assert stats.declined and stats.withdrawn


def test_a_loop_that_is_closed_while_its_task_waits_holds_up_nobody(caplog):
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    head = coordinator.enqueue("k")
    loop = asyncio.new_event_loop()
    task = loop.create_task(AsyncQueueCoordinator(coordinator).enqueue("k"))
    loop.run_until_complete(asyncio.sleep(0))
    assert coordinator.state("k") is TrafficState.BLOCK
    loop.close()
    task._log_destroy_pending = False
    assert coordinator.dequeue(head)
    assert "event loop closed while a task waited" in caplog.text
    assert coordinator.offer("k", print)
