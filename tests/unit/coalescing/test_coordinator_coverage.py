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
    Overflow,
    QueueCoordinator,
    Refusal,
    Token,
    TrafficState,
    key_table,
)
from leaderq.coalescing.key_table import KeyState
from leaderq.errors import ConfigurationError, WaitTimedOut, WouldDeadlock
from leaderq.testing import eventually


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


def test_the_next_to_come_takes_the_debt_over_whether_it_waits_or_runs(caplog):
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    with coordinator.hold("k"):
        given_up(coordinator, Origin())
        comer = coordinator.offer("k", lambda token: None)
        assert comer.covers == 1 and coordinator.stats().owed == 0
    assert comer
    coordinator.dequeue(comer)
    with coordinator.hold("k"):
        given_up(coordinator, Origin())
    assert "requests not covered yet key='k' count=1" in caplog.text
    assert coordinator.stats().owed == 1
    with coordinator.hold("k") as token:
        assert token.covers == 1 and coordinator.stats().owed == 0
    assert coordinator.stats().running == 0
    assert coordinator.drain(0) == ()


def test_a_drain_that_leaves_declined_requests_uncovered_says_how_many(caplog):
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    for key in "ab":
        with coordinator.hold(key):
            waiter = coordinator.offer(key, lambda token: None)
            for _ in range(2):
                assert coordinator.offer(key, print).refusal is Refusal.FULL
            coordinator.dequeue(waiter)
    head, waiter = (coordinator.offer("c", lambda token: None) for _ in range(2))
    assert head and coordinator.offer("c", print).refusal is Refusal.FULL
    assert coordinator.drain(0) == (head,)
    assert "drained, requests not covered keys=3 count=5 key='a'" in caplog.text
    caplog.clear()
    coordinator.dequeue(head)
    assert coordinator.drain(0) == ()
    assert caplog.text == ""


def test_a_comer_that_gives_up_too_passes_on_what_it_took_over(pool):
    origin = Origin()
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    head = pool.submit(coordinator.run, "k", origin.refresh)
    assert origin.begun.acquire(timeout=60)
    given_up(coordinator, origin)
    for _ in range(3):
        with pytest.raises(WaitTimedOut) as caught:
            coordinator.enqueue("k", timeout_s=0)
        assert caught.value.covers == 1
    origin.may_end.release(2)
    head.result(60)
    assert (origin.cache, origin.runs) == (1, 2)


def test_of_several_who_wait_another_one_covers_and_nobody_runs_needlessly():
    coordinator: QueueCoordinator[str] = QueueCoordinator(waiters=2)
    head = coordinator.offer("k", print)
    first, second = (coordinator.offer("k", lambda token: None) for _ in range(2))
    assert coordinator.offer("k", print).refusal is Refusal.FULL
    coordinator.dequeue(second)
    assert first.covers == 1 and coordinator.stats().owed == 0
    coordinator.dequeue(head)
    assert first and coordinator.dequeue(first)
    assert coordinator.stats().runs == 2


def test_one_that_covers_nobody_leaves_no_debt_and_neither_do_followers_who_ask_again(pool):
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    head = coordinator.offer("k", print)
    waiter = coordinator.offer("k", print)
    coordinator.dequeue(waiter)
    waiter = coordinator.offer("k", print)
    follower = pool.submit(coordinator.run, "k", lambda: "own")
    eventually(lambda: coordinator.stats().declined == 1)
    coordinator.dequeue(waiter)
    eventually(lambda: coordinator.stats().waiting == 1)
    coordinator.dequeue(head)
    assert follower.result(60) == "own"
    assert (coordinator.stats().owed, coordinator.stats().repeated) == (0, 0)


def test_the_values_of_merged_requests_are_not_lost_with_their_waiter():
    coordinator: QueueCoordinator[str] = QueueCoordinator(
        overflow=lambda waiting, new: waiting | new
    )
    head = coordinator.offer("k", print, {0})
    waiter = coordinator.offer("k", print, {1})
    assert coordinator.offer("k", print, {2}).refusal is Refusal.MERGED
    coordinator.dequeue(waiter)
    comer = coordinator.offer("k", lambda token: None, {3})
    assert comer.value == {1, 2, 3} and comer.covers == 1
    coordinator.dequeue(head)
    assert comer and coordinator.dequeue(comer)
    head = coordinator.offer("k", print, {0})
    coordinator.dequeue(coordinator.offer("k", print, {1}))
    waiter = coordinator.offer("k", print, {2})
    coordinator.offer("k", print, {3})
    coordinator.dequeue(waiter)
    coordinator.dequeue(head)
    assert coordinator.enqueue("k", {4}, owner=None).value == {2, 3, 4}


@pytest.mark.parametrize("share", [True, False])
def test_if_the_head_does_not_know_how_the_function_of_the_one_that_gave_up_runs(pool, share):
    origin = Origin()
    coordinator: QueueCoordinator[str] = QueueCoordinator(timeout_s=0.3)
    refresh = coordinator.coalesced(key=lambda page: page, share=share)(origin.refresh)
    origin.may_end.release(1)
    with coordinator.hold("k") as token:
        impatient = pool.submit(refresh, "k")
        eventually(lambda: coordinator.stats().waiting == 1)
        assert coordinator.offer("k", print).refusal is Refusal.FULL
        with pytest.raises(WaitTimedOut):
            impatient.result(60)
        assert token and origin.runs == 0
    assert origin.runs == 1 and coordinator.state("k") is TrafficState.INIT


def test_an_eviction_leads_to_the_cover_as_well():
    now, covered = [0.0], []
    coordinator: QueueCoordinator[str] = QueueCoordinator(
        safe_timeout_s=5, cover=covered.append, clock=lambda: now[0], background=False
    )
    coordinator.offer("k", print)
    given_up(coordinator, Origin())
    now[0] = 5.0
    coordinator.sweep()
    assert covered == ["k"] and coordinator.stats().evicted == 1


def test_an_overdue_head_is_evicted_for_a_debt_by_the_timer_itself():
    covered: list[str] = []
    coordinator: QueueCoordinator[str] = QueueCoordinator(safe_timeout_s=0.5, cover=covered.append)
    coordinator.offer("k", print)
    waiter = coordinator.offer("k", print)
    coordinator.offer("k", print)
    coordinator.dequeue(waiter)
    eventually(lambda: covered == ["k"])


def test_what_a_replaced_one_covered_goes_along_until_it_is_paid():
    coordinator: QueueCoordinator[str] = QueueCoordinator(overflow=Overflow.REPLACE_OLDEST)
    coordinator.offer("k", print)
    waiters = [coordinator.offer("k", lambda token: None) for _ in range(4)]
    coordinator.dequeue(waiters[-1])
    assert coordinator.stats().owed == waiters[-1].covers == 3


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


def test_a_turn_that_came_to_a_cancelled_task_is_covered_by_another():
    async def main() -> None:
        covered: list[str] = []

        async def cover(key: str) -> None:
            covered.append(key)

        coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator(cover=cover)
        first = await coordinator.enqueue("k")
        second = asyncio.create_task(coordinator.enqueue("k"))
        await until(lambda: coordinator.coordinator.stats().waiting)
        third = await asyncio.create_task(coordinator.enqueue("k"))
        assert third.refusal is Refusal.FULL
        coordinator.dequeue(first)  # it is the second's turn, which has not heard of it yet
        second.cancel()
        await until(lambda: covered == ["k"])
        assert await coordinator.drain(10) == ()

    asyncio.run(main())


def test_a_waiter_that_dies_with_its_loop_passes_on_what_it_covered():
    covered: list[str] = []
    coordinator: QueueCoordinator[str] = QueueCoordinator(cover=covered.append)
    head = coordinator.enqueue("k")
    loop = asyncio.new_event_loop()
    task = loop.create_task(AsyncQueueCoordinator(coordinator).enqueue("k"))
    loop.run_until_complete(asyncio.sleep(0))
    assert coordinator.enqueue("k", owner=None).refusal is Refusal.FULL
    loop.close()
    task._log_destroy_pending = False
    coordinator.dequeue(head)
    assert covered == ["k"]


def test_what_is_no_coroutine_function_is_refused_for_tasks():
    coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator()
    with pytest.raises(ConfigurationError, match="async def"):
        AsyncQueueCoordinator(cover=print)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="async def"):
        coordinator.coalesced(key=str)(len)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cover"):

        async def cover(key: str) -> None: ...

        AsyncQueueCoordinator(QueueCoordinator(), cover=cover)


def test_several_who_give_up_leave_all_the_values_that_were_merged_into_theirs() -> None:
    """Each had a place of its own, and a value that nobody else has."""
    coordinator: QueueCoordinator[str] = QueueCoordinator(waiters=2, overflow=lambda a, b: a | b)
    head, second, third = (coordinator.offer("k", print, {number}) for number in range(3))
    assert coordinator.offer("k", print, {30}).refusal is Refusal.MERGED
    coordinator.dequeue(head)
    fourth = coordinator.offer("k", print, {4})
    assert coordinator.offer("k", print, {50}).refusal is Refusal.MERGED
    coordinator.dequeue(third)
    coordinator.dequeue(fourth)
    assert second and coordinator.stats().owed == 2
    heir = coordinator.offer("k", print, {6})
    assert heir.value >= {30, 50, 6} and heir.covers == 2


def test_several_who_give_up_are_run_for_one_by_one_if_nobody_comes() -> None:
    values: list[set[int]] = []
    coordinator: QueueCoordinator[str] = QueueCoordinator(waiters=2, overflow=lambda a, b: a | b)
    inside = coordinator._keys
    inside.cover = lambda token: (values.append(token.value), coordinator.dequeue(token))
    head, _, third = (coordinator.offer("k", coordinator.dequeue, {number}) for number in range(3))
    coordinator.offer("k", print, {30})
    fourth = coordinator.offer("k", print, {4})
    assert fourth.refusal is Refusal.MERGED
    coordinator.dequeue(third)
    again = coordinator.offer("k", print, {5})
    coordinator.offer("k", print, {50})
    coordinator.dequeue(again)
    coordinator.dequeue(head)
    assert set().union(*values) >= {30, 4, 50} and coordinator.stats().owed == 0


def test_who_may_not_wait_for_itself_takes_no_debt_along() -> None:
    coordinator: QueueCoordinator[str] = QueueCoordinator(overflow=lambda a, b: a | b)
    head = coordinator.enqueue("k", {0})
    waiter = coordinator.offer("k", print, {1})
    coordinator.offer("k", print, {2})
    coordinator.dequeue(waiter)
    with pytest.raises(WouldDeadlock):
        coordinator.enqueue("k", {3})
    assert coordinator.stats().owed == 1
    coordinator.dequeue(head)
    with coordinator.hold("k", {4}) as token:
        assert token.value >= {2, 4} and token.covers == 1


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


@pytest.mark.timeout(180 * TIMES)
def test_tasks_that_are_cancelled_at_random_leave_no_declined_request_uncovered() -> None:
    async def main() -> None:
        history = TurnHistory()

        async def refresh(key: str, request: object = None) -> None:
            request = request or object()
            history.note(key, request, What.BEGAN)
            try:
                await asyncio.sleep(random.choice((0, 0.000_2)))
            finally:
                history.note(key, request, What.ENDED)

        coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator(cover=refresh)

        async def live(keys: list[str]) -> None:
            for _ in range(8):
                key, request = random.choice(keys), object()
                history.note(key, request, What.CAME)
                try:
                    async with coordinator.hold(
                        key, timeout_s=random.choice((0.000_1, 5))
                    ) as token:
                        if token:
                            await refresh(key, request)
                        else:
                            history.note(key, request, What.DECLINED)
                except WaitTimedOut:
                    pass
                await asyncio.sleep(0)

        for round_ in range(40 * TIMES):
            keys = [f"{round_}-{number}" for number in range(3)]
            tasks = [asyncio.create_task(live(keys)) for _ in range(12)]
            for task in random.sample(tasks, 9):
                await asyncio.sleep(random.choice((0, 0.000_1)))
                task.cancel()
            found = await asyncio.gather(*tasks, return_exceptions=True)
            assert {type(one) for one in found} <= {type(None), asyncio.CancelledError}
        assert await coordinator.drain(30) == ()
        assert coordinator.coordinator.stats().repeated > 0
        print(f"12 tasks: {history}")
        assert faults(history.events) == []

    asyncio.run(main())
