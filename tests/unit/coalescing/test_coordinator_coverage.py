"""A declined request is always covered: if the waiter that stood for it gives up, somebody else
runs for it, and begins after the declined request came.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from turns import TIMES, TurnHistory, What, faults

from leaderq.clock import now_s
from leaderq.coalescing import (
    AsyncQueueCoordinator,
    EnqueueOutcome,
    QueueCoordinator,
    Refusal,
    Token,
    TrafficState,
    key_table,
)
from leaderq.coalescing.key_table import KeyState
from leaderq.errors import WaitTimedOut


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


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


# -- tasks -------------------------------------------------------------------------------------


async def until(fact: Callable[[], object]) -> None:
    ends_s = now_s() + 60
    while not fact():
        assert now_s() < ends_s, "it never came true"
        await asyncio.sleep(0.002)


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


# -- the history of a crowd ---------------------------------------------------------------------


class Died(BaseException):
    """Ends a thread's work while it has the key, or waits for it."""


def crowd(count: int, life: Callable[[int], None]) -> None:
    threads = [
        threading.Thread(target=life, args=(number,), daemon=True) for number in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120 * TIMES)
        assert not thread.is_alive(), "a thread is stuck"


class Asking:
    """The ways in which the threads of a crowd ask for a key, and how each is noted."""

    def __init__(self, waiters: int, *, has_cover: bool) -> None:
        self.history = TurnHistory()
        self.mine = threading.local()
        """The request of this thread, if its wait is to be noted."""
        self.coordinator: QueueCoordinator[str] = QueueCoordinator(
            waiters=waiters, cover=self.work if has_cover else None
        )
        self.refresh = self.coordinator.coalesced(key=lambda key: key, declined="declined")(
            self.work
        )

    def noting(self) -> type[KeyState]:
        """Notes under the coordinator's lock who waits, and who gives up, in time or not."""
        asking, waiting = self, dict[Token[str], object]()

        class Noting(KeyState):
            __slots__ = ()

            def enqueue(self, owner):
                outcome = super().enqueue(owner)
                if outcome is EnqueueOutcome.BLOCK and asking.mine.request is not None:
                    waiting[owner] = asking.mine.request
                    asking.history.note(owner.key, waiting[owner], What.WAITS)
                return outcome

            def dequeue(self, owner):
                if owner in waiting and owner in self.line[1:]:
                    asking.history.note(owner.key, waiting[owner], What.GAVE_UP)
                return super().dequeue(owner)

        return Noting

    def work(self, key: str, request: object = None) -> None:
        request = request or object()
        self.history.note(key, request, What.BEGAN)
        time.sleep(random.choice((0, 0.000_2)))
        self.history.note(key, request, What.ENDED)

    def by_hand(self, key: str, request: object, chance: random.Random) -> None:
        try:
            token = self.coordinator.enqueue(key, timeout_s=chance.choice((0, 0.000_1, 0.001)))
        except WaitTimedOut:
            return
        if token.refusal is not None:
            self.history.note(key, request, What.DECLINED)
            return
        self.work(key, request)
        assert self.coordinator.dequeue(token)

    def by_function(self, key: str, request: object, _: random.Random) -> None:
        if self.refresh(key) == "declined":
            self.history.note(key, request, What.DECLINED)

    def and_withdraws(self, key: str, request: object, _: random.Random) -> None:
        token = self.coordinator.offer(key, lambda token: None)
        if token.refusal is not None:
            self.history.note(key, request, What.DECLINED)
            return
        if not token.has_waited:
            self.work(key, request)
            assert self.coordinator.dequeue(token)
            return
        time.sleep(0)
        if has_run := bool(token):  # its turn came just then
            self.work(key, request)
        else:  # also if its turn comes now
            self.history.note(key, request, What.GAVE_UP)
        (self.coordinator.dequeue if has_run else self.coordinator._keys.drop)(token)

    def and_dies(self, key: str, request: object, _: random.Random) -> None:
        try:
            with self.coordinator.hold(key) as token:
                if token.refusal is not None:
                    self.history.note(key, request, What.DECLINED)
                    return
                self.history.note(key, request, What.DIED)
                raise Died
        except Died:
            return

    def ask(self, key: str, chance: random.Random) -> None:
        request = object()
        self.history.note(key, request, What.CAME)
        ways = (self.by_hand, self.by_hand, self.by_function, self.and_withdraws, self.and_dies)
        way = chance.choice(ways)
        self.mine.request = None if way == self.by_function else request  # it may run again
        way(key, request, chance)


@pytest.mark.timeout(180 * TIMES)
@pytest.mark.parametrize(("waiters", "has_cover"), [(1, True), (1, False), (2, True)])
def test_a_hundred_threads_whose_waiters_give_up_and_die_leave_no_declined_request_uncovered(
    monkeypatch: pytest.MonkeyPatch, waiters: int, has_cover: bool
) -> None:
    asking = Asking(waiters, has_cover=has_cover)
    monkeypatch.setattr(key_table, "KeyState", asking.noting())
    for round_ in range(5 * TIMES):
        keys = [f"{round_}-{number}" for number in range(8 // waiters)]

        def life(number: int, keys: list[str] = keys, round_: int = round_) -> None:
            chance = random.Random(f"{round_} {number}")
            for _ in range(4):
                asking.ask(chance.choice(keys), chance)

        crowd(100, life)
        if not has_cover:  # who runs by hand cannot run again: the next to come pays
            asking.mine.request = None
            for key in keys:
                asking.refresh(key)
        assert asking.coordinator.stats().owed == 0
    assert asking.coordinator.stats().declined > 10
    assert sum(one.what is What.GAVE_UP for one in asking.history.events) > 10
    assert asking.coordinator.drain(30) == ()
    print(f"100 threads, waiters={waiters} cover={has_cover}: {asking.history}")
    assert faults(asking.history.events, waiters=waiters) == []
