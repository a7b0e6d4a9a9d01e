"""Users who do what the documentation does not mention: a coordinator takes it, or says so at
once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import math
import os
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from leaderq.coalescing import (
    AsyncQueueCoordinator,
    Debounce,
    KeepIdle,
    QueueCoordinator,
    Refusal,
    TokenStage,
    TrafficState,
)
from leaderq.coalescing.token import RunResult
from leaderq.errors import ConfigurationError, WaitTimedOut, WouldDeadlock
from leaderq.plain import NotAPlainFunction
from leaderq.testing import eventually
from leaderq.testing.waiting import patience

WAIT_S = 60.0 * patience()


class Rude(BaseException):
    """Not an Exception, and nothing that anybody expects."""


def declined_for_nobody(coordinator: QueueCoordinator[str], key: str = "k") -> None:
    """While somebody runs: another one waits, a third is declined for its sake, and it gives up."""
    waiter = coordinator.offer(key, lambda token: None)
    assert coordinator.offer(key, print).refusal is Refusal.FULL
    coordinator.dequeue(waiter)


# -- functions that raise anything


@pytest.mark.parametrize("raised", [Rude, SystemExit, asyncio.CancelledError, GeneratorExit])
def test_a_call_that_raises_anything_gives_the_key_back_and_the_one_who_called_hears_of_it(
    raised: type[BaseException],
) -> None:
    def on_turn(_: object) -> None:
        raise raised

    coordinator: QueueCoordinator[str] = QueueCoordinator(waiters=2)
    head = coordinator.offer("k", print)
    coordinator.offer("k", on_turn)
    last = coordinator.offer("k", lambda token: None)
    with pytest.raises(raised):
        coordinator.dequeue(head)
    assert last.is_current and coordinator.dequeue(last)
    assert coordinator.state("k") is TrafficState.INIT


@pytest.mark.parametrize("raised", [Rude, SystemExit])
def test_a_cover_that_raises_anything_gives_the_key_back(raised: type[BaseException]) -> None:
    def cover(key: str) -> None:
        covered.append(key)
        if len(covered) < 10:  # called without end it would never be told
            raise raised

    covered: list[str] = []
    coordinator: QueueCoordinator[str] = QueueCoordinator(cover=cover)
    with pytest.raises(raised), coordinator.hold("k"):
        declined_for_nobody(coordinator)
    assert coordinator.state("k") is TrafficState.INIT and covered == ["k"]


@pytest.mark.parametrize("raised", [Rude, SystemExit, StopIteration, GeneratorExit])
def test_a_function_that_raises_anything_gives_the_key_back(raised: type[BaseException]) -> None:
    def function() -> None:
        raise raised

    async def async_function() -> None:
        raise raised

    coordinator: QueueCoordinator[str] = QueueCoordinator()
    tasks = AsyncQueueCoordinator(coordinator)
    calls: list[Callable[[], object]] = [
        lambda: coordinator.run("k", function),
        coordinator.coalesced(key=lambda: "k")(function),
        lambda: asyncio.run(tasks.run("k", async_function)),  # type: ignore[arg-type]
    ]
    for call in calls:
        with pytest.raises((raised, RuntimeError)):
            call()
        assert coordinator.state("k") is TrafficState.INIT


async def _coroutine(*_: object) -> None: ...


def _generator(*_: object) -> Iterator[None]:
    yield


@pytest.mark.parametrize("unfinished", [_coroutine, _generator])
def test_a_function_that_returns_work_for_somebody_else_to_do_is_told_and_keeps_no_key(
    unfinished: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """As a lambda does that calls an async function: that it would is seen only when it did."""
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    merging: QueueCoordinator[str] = QueueCoordinator(overflow=lambda a, b: unfinished(a, b))
    for _ in range(2):
        merging.offer("k", print, 1)
    calls: list[Callable[[], object]] = [
        lambda: coordinator.run("k", lambda: unfinished()),
        coordinator.coalesced(key=lambda: "k")(lambda: unfinished()),
        lambda: merging.offer("k", print, 1),
    ]
    for call in calls:
        with pytest.raises(NotAPlainFunction):
            call()
    with coordinator.hold("k"):
        token = coordinator.offer("k", lambda token: unfinished(token))
    assert not token and "returned" in caplog.text
    assert coordinator.state("k") is TrafficState.INIT


def test_a_function_may_start_work_and_return_its_future() -> None:
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    with ThreadPoolExecutor(1) as pool:
        assert coordinator.run("k", lambda: pool.submit(int)).result(WAIT_S) == 0

        async def main() -> None:
            with coordinator.hold("k"):
                token = coordinator.offer("k", lambda _: asyncio.create_task(asyncio.sleep(0)))
            assert token and coordinator.dequeue(token)

        asyncio.run(main())


def test_an_error_that_many_share_does_not_grow_with_them() -> None:
    """Else each would keep the frames, and what they hold, of all who raised it before."""

    def fail() -> None:
        raise ValueError

    result = RunResult.of(fail)
    lengths = []
    for _ in range(20):
        with pytest.raises(ValueError) as caught:
            result.get()
        lengths.append(len(traceback.extract_tb(caught.value.__traceback__)))
    assert len(set(lengths)) == 1 and "fail" in str(traceback.extract_tb(caught.tb))


# -- threads that are killed


class Killed(BaseException):
    """Thrown into a thread."""


def test_a_thread_killed_while_it_waits_leaves_the_line_and_keeps_no_key() -> None:
    coordinator: QueueCoordinator[str] = QueueCoordinator(timeout_s=None)

    def live() -> None:
        with contextlib.suppress(Killed), coordinator.hold("k"):
            pass

    for number in range(20):
        head = coordinator.enqueue("k", owner=None)
        thread = threading.Thread(target=live)
        thread.start()
        if number % 2:  # else it may be killed anywhere, before it waits too
            eventually(lambda: coordinator.stats().waiting)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(thread.ident or 0), ctypes.py_object(Killed)
        )
        coordinator.dequeue(head)
        thread.join(WAIT_S)
        assert not thread.is_alive()
        assert coordinator.try_enqueue("k") and coordinator.dequeue("k")


# -- calls back into the coordinator


def test_a_cover_that_asks_for_the_key_it_holds_does_not_wait_for_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As one does whose cover is the coalesced function itself."""
    runs: list[str] = []
    coordinator: QueueCoordinator[str] = QueueCoordinator(
        cover=lambda key: refresh(key), timeout_s=None
    )
    refresh = coordinator.coalesced(key=lambda key: key)(runs.append)
    with coordinator.hold("k"):
        declined_for_nobody(coordinator)
    assert "WouldDeadlock" in caplog.text
    assert coordinator.state("k") is TrafficState.INIT


def test_a_cover_of_tasks_that_asks_for_the_key_it_holds_does_not_wait_for_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def cover(key: str) -> None:
        async with coordinator.hold(key):
            raise AssertionError("it has the key twice")

    coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator(cover=cover, timeout_s=None)

    async def main() -> None:
        async with coordinator.hold("k"):
            declined_for_nobody(coordinator.coordinator)
        while coordinator.coordinator.stats().running:
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(main(), WAIT_S))
    assert "WouldDeadlock" in caplog.text


def test_functions_may_ask_for_other_keys_drain_and_be_asked_again() -> None:
    coordinator: QueueCoordinator[str] = QueueCoordinator()

    def inner() -> str:
        with pytest.raises(WouldDeadlock):
            coordinator.run("a", lambda: "never")
        assert coordinator.try_enqueue("a").refusal is Refusal.BUSY
        left = coordinator.drain(0)
        assert {token.key for token in left} == {"a", "b"}
        return "inner"

    assert coordinator.run("a", lambda: coordinator.run("b", inner)) == "inner"
    assert coordinator.drain(0) == ()


def test_a_scope_is_entered_once_because_two_that_shared_one_would_leave_for_each_other() -> None:
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    scope = coordinator.hold("k")
    with scope as token:
        assert token
        with pytest.raises((AttributeError, RuntimeError)), scope:
            pass
    assert coordinator.state("k") is TrafficState.INIT


# -- keys


class Fickle:
    """A key whose hash changes."""

    def __init__(self) -> None:
        self.number = 1

    def __hash__(self) -> int:
        return self.number


def test_a_key_that_changes_while_it_is_worked_on_is_told_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    coordinator: QueueCoordinator[Any] = QueueCoordinator()
    key = Fickle()
    token = coordinator.enqueue(key)
    key.number = 2
    assert coordinator.dequeue(token) is False
    assert not token and "its key has changed or it belongs elsewhere" in caplog.text
    assert coordinator.dequeue(token) is False, "it is over, and was told of once"


def test_a_token_of_another_coordinator_gives_no_key_back(caplog: pytest.LogCaptureFixture) -> None:
    one: QueueCoordinator[str] = QueueCoordinator()
    other: QueueCoordinator[str] = QueueCoordinator()
    mine, foreign = one.enqueue("k"), other.enqueue("k")
    assert one.dequeue(foreign) is False and "belongs elsewhere" in caplog.text
    assert mine and one.dequeue(mine)
    other.dequeue(foreign)
    assert other.state("k") is TrafficState.INIT


@pytest.mark.parametrize("key", [[], {}, set(), bytearray(b"k")])
def test_what_cannot_be_a_key_is_refused_by_all_forms(key: Any) -> None:
    coordinator: QueueCoordinator[Any] = QueueCoordinator()
    tasks = AsyncQueueCoordinator(coordinator)
    calls: list[Callable[[], object]] = [
        lambda: coordinator.enqueue(key),
        lambda: coordinator.offer(key, print),
        lambda: coordinator.run(key, list),
        lambda: coordinator.coalesced(key=lambda: key)(list)(),
        lambda: coordinator.hold(key).__enter__(),
        lambda: asyncio.run(tasks.enqueue(key)),
    ]
    for call in calls:
        with pytest.raises(TypeError, match="unhashable"):
            call()
    assert coordinator.stats().runs == 0


# -- times


@pytest.mark.parametrize("timeout_s", [math.inf, 1e30, 10**40])
def test_any_length_of_time_is_a_time_out(timeout_s: float) -> None:
    coordinator: QueueCoordinator[str] = QueueCoordinator(
        timeout_s=timeout_s, safe_timeout_s=timeout_s
    )
    head = coordinator.offer("k", print)
    thread = threading.Thread(
        target=coordinator.run, args=("k", list), kwargs={"timeout_s": timeout_s}
    )
    thread.start()
    eventually(lambda: coordinator.stats().waiting == 1)
    coordinator.dequeue(head)
    thread.join(WAIT_S)
    assert asyncio.run(AsyncQueueCoordinator(coordinator).enqueue("b", timeout_s=timeout_s))
    eventually(lambda: coordinator.state("k") is TrafficState.INIT)
    (token,) = coordinator._keys.line("b")
    threading.Timer(0.05, coordinator.dequeue, [token]).start()
    assert coordinator.drain(timeout_s) == ()


@pytest.mark.parametrize("wrong", [-1.0, math.nan, "1", True])
def test_what_is_no_time_is_refused_by_all_that_take_one(wrong: Any) -> None:
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    calls: list[Callable[[], object]] = [
        lambda: coordinator.enqueue("k", timeout_s=wrong),
        lambda: coordinator.run("k", list, timeout_s=wrong),
        lambda: coordinator.hold("k", timeout_s=wrong).__enter__(),
        lambda: coordinator.drain(wrong),
        lambda: asyncio.run(AsyncQueueCoordinator(coordinator).enqueue("k", timeout_s=wrong)),
        lambda: QueueCoordinator(timeout_s=wrong),
        lambda: QueueCoordinator(safe_timeout_s=wrong),
        lambda: QueueCoordinator(debounce=Debounce(wrong, 1)),
        lambda: QueueCoordinator(idle=KeepIdle(64, wrong)),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError):
            call()
    assert coordinator.stats().runs == 0


# -- loops that end


def test_a_coordinator_of_tasks_serves_one_loop_after_another_and_covers_in_each() -> None:
    covered: list[str] = []

    async def cover(key: str) -> None:
        covered.append(key)

    coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator(cover=cover)
    inside = coordinator.coordinator

    async def leave_a_debt() -> None:
        head = await coordinator.enqueue("k")
        declined_for_nobody(inside)
        threads.append(threading.Timer(0.0, lambda: (closed.wait(WAIT_S), inside.dequeue(head))))

    threads: list[threading.Timer] = []
    closed = threading.Event()
    asyncio.run(leave_a_debt())
    closed.set()
    threads[0].start()
    threads[0].join(WAIT_S)
    assert covered == [] and inside.stats().owed == 1, "its loop is closed: the next request pays"

    async def second() -> None:
        async with coordinator.hold("k") as token:
            assert token and token.covers == 1
            declined_for_nobody(inside)
        while inside.stats().running:
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(second(), WAIT_S))
    assert covered == ["k"] and inside.stats().owed == 0


@pytest.mark.parametrize("more_steps", range(4))
def test_a_loop_that_ends_before_or_in_a_cover_leaves_the_debt_to_the_next_request(
    more_steps: int,
) -> None:
    async def cover(key: str) -> None:
        await asyncio.Event().wait()

    coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator(cover=cover)
    inside = coordinator.coordinator

    async def main() -> None:
        async with coordinator.hold("k"):
            declined_for_nobody(inside)
        for _ in range(more_steps):
            await asyncio.sleep(0)

    gc.disable()  # the key is not to wait for it
    try:
        asyncio.run(main())
        assert not inside.stats().running
    finally:
        gc.enable()
    assert inside.stats().owed == 1
    with inside.hold("k", timeout_s=0) as token:
        assert token.covers == 1


def test_a_loop_closed_in_a_cover_leaves_the_debt_to_the_next_loop() -> None:
    async def cover(key: str) -> None:
        begun.append(key)
        await asyncio.Event().wait()

    async def main() -> None:
        async with coordinator.hold("k"):
            declined_for_nobody(coordinator.coordinator)
        while not begun:
            await asyncio.sleep(0)

    async def next_one() -> int:
        async with coordinator.hold("k") as token:
            return token.covers

    begun: list[str] = []
    coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator(cover=cover)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(main())
    (task,) = asyncio.all_tasks(loop)
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task
    loop.close()
    gc.collect()
    assert asyncio.run(asyncio.wait_for(next_one(), WAIT_S)) == 1


@pytest.mark.filterwarnings("ignore:coroutine:RuntimeWarning")
def test_a_loop_closed_with_a_cover_that_never_began_gives_the_key_back() -> None:
    async def cover(key: str) -> None:
        raise AssertionError

    coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator(cover=cover)
    inside = coordinator.coordinator
    loop = asyncio.new_event_loop()
    token = loop.run_until_complete(coordinator.enqueue("k"))
    declined_for_nobody(inside)
    assert inside.dequeue(token) and inside.stats().running == 1
    loop.close()
    gc.collect()
    eventually(lambda: not inside.stats().running)
    assert inside.stats().owed == 1


def test_a_loop_closed_while_its_task_runs_gives_the_key_back() -> None:
    coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator()
    loop = asyncio.new_event_loop()

    async def run() -> None:
        async with coordinator.hold("k"):
            await asyncio.Event().wait()

    task = loop.create_task(run())
    loop.run_until_complete(asyncio.sleep(0))
    assert coordinator.coordinator.state("k") is TrafficState.PROCESS
    loop.close()
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task
    gc.collect()
    eventually(lambda: coordinator.coordinator.try_enqueue("k"))


# -- forks


def in_a_fork(check: Callable[[], object]) -> None:
    """Whether ``check`` is true in a child."""
    pid = os.fork()
    if pid == 0:
        is_right = False
        try:
            is_right = bool(check())
        finally:
            os._exit(0 if is_right else 1)
    assert eventually(lambda: os.waitpid(pid, os.WNOHANG))[1] == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_has_no_keys_whatever_its_parent_was_doing() -> None:
    coordinator: QueueCoordinator[str] = QueueCoordinator(safe_timeout_s=30, idle=KeepIdle(cap=64))
    mine = coordinator.enqueue("mine")
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            with coordinator.hold("k", timeout_s=None):
                pass

    threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    coordinator.offer("mine", print)

    def check() -> bool:
        assert not mine and mine.stage is TokenStage.ABANDONED
        assert coordinator.stats().running == coordinator.stats().waiting == 0
        with coordinator.hold("mine") as own, coordinator.hold("k") as other:
            assert own.number > mine.number and other
            try:
                coordinator.enqueue("k", timeout_s=0.01, owner=None)
            except WaitTimedOut:
                return coordinator.drain(0) == (own, other) or True
        return False

    for _ in range(20):
        in_a_fork(check)
    stop.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert mine and coordinator.dequeue(mine)


# -- the thread that ends debounce windows and evicts


@pytest.mark.parametrize("raised", [Rude, SystemExit])
def test_a_call_that_raises_anything_does_not_end_the_timer(
    raised: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def on_turn(_: object) -> None:
        raise raised

    coordinator: QueueCoordinator[str] = QueueCoordinator(debounce=Debounce(0.01, 0.01))
    coordinator.offer("rude", on_turn)
    eventually(lambda: raised.__name__ in caplog.text)
    with coordinator.hold("other", timeout_s=WAIT_S) as token:
        assert token
    eventually(lambda: coordinator.state("rude") is TrafficState.INIT)
