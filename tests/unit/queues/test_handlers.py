"""Who runs the user's code on what was taken: functions, and coroutine functions on one loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from typing import Any

import pytest

from leaderq.base.arguments import NotAPlainFunction
from leaderq.engine.handlers import Handler, HandlerThreads, handler_problem
from leaderq.engine.serializers import JSON, TEXT, value_of
from leaderq.errors import ConfigurationError, CorruptItem
from leaderq.queues.consumers import QueueOptions
from leaderq.testing import eventually

NAME = "handler-loop"


def loops() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == NAME]


@pytest.fixture(autouse=True)
def all_loops_end() -> Iterator[None]:
    yield
    eventually(lambda: not loops())


def test_a_plain_function_is_called_on_the_callers_thread_and_starts_no_loop() -> None:
    seen: list[Any] = []
    handler = Handler("it", lambda one: seen.append((one, threading.get_ident())), NAME)
    handler("x")
    assert seen == [("x", threading.get_ident())]
    assert not loops()
    handler.close()


def test_coroutines_of_several_threads_run_side_by_side_on_one_loop() -> None:
    both = asyncio.Event()
    seen: list[Any] = []

    async def work(one: str) -> None:
        seen.append((one, asyncio.get_running_loop()))
        if len(seen) == 2:
            both.set()
        await both.wait()  # neither ends before both have begun

    handler = Handler("it", work, NAME)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(handler, ["x", "y"]))
    assert {one for one, _ in seen} == {"x", "y"}
    assert len({loop for _, loop in seen}) == len(loops()) == 1
    handler.close()


def test_what_a_coroutine_raises_is_raised_and_a_cancelled_one_has_failed() -> None:
    async def work(error: BaseException) -> None:
        raise error

    handler = Handler("it", work, NAME)
    for error in (ValueError("no"), asyncio.CancelledError()):
        with pytest.raises((ValueError, CancelledError)):
            handler(error)
    handler.close()


def test_tasks_that_coroutines_leave_behind_are_cancelled_at_the_end() -> None:
    left: list[asyncio.Task[None]] = []

    async def forever() -> None:
        await asyncio.Event().wait()

    async def work() -> None:
        left.append(asyncio.create_task(forever()))

    handler = Handler("it", work, NAME)
    handler()
    handler.close()
    eventually(lambda: left[0].cancelled())
    handler.close()


def test_coroutine_functions_do_work_and_generators_do_none() -> None:
    async def work(_: object) -> None: ...
    async def never(_: object) -> AsyncIterator[int]:
        yield 1

    def later(_: object) -> Iterator[int]:
        yield 1

    assert QueueOptions(consumer=work).on_value is work
    QueueOptions(consume_batch=work)
    assert handler_problem("it", work) is handler_problem("it", None, or_none=True) is None
    for wrong in (later, never, 3):
        assert handler_problem("it", wrong)
        for option in ("consumer", "consume_batch"):
            with pytest.raises(ConfigurationError, match=f"{option} is"):
                QueueOptions(**{option: wrong})  # type: ignore[arg-type]
    assert handler_problem("it", None)
    with pytest.raises(NotAPlainFunction, match="it returned"):
        Handler("it", lambda: later(1), NAME)()


def test_what_a_serializer_refuses_is_corrupt() -> None:
    assert value_of(JSON, b'{"a": 1}') == {"a": 1}
    for serializer, wrong in ((JSON, b"{"), (TEXT, b"\xff")):
        with pytest.raises(CorruptItem, match="the serializer refuses it"):
            value_of(serializer, wrong)


@pytest.mark.parametrize("rude", ["exits", "stops the loop"])
def test_a_coroutine_that_leaves_or_stops_the_loop_has_failed_and_no_other(rude: str) -> None:
    begun, go_on = threading.Event(), threading.Event()

    async def work(one: str) -> None:
        if one == "long":
            begun.set()
            while not go_on.is_set():
                await asyncio.sleep(0.01)
        elif rude == "exits":
            raise SystemExit(3)
        else:
            asyncio.get_running_loop().stop()

    handler = Handler("it", work, NAME)
    with ThreadPoolExecutor(2) as pool:
        beside = pool.submit(handler, "long")
        assert begun.wait(60)
        leaving = pool.submit(handler, "rude")
        assert isinstance(leaving.exception(60), SystemExit if rude == "exits" else type(None))
        go_on.set()
        assert beside.exception(60) is None
        assert pool.submit(handler, "long").exception(60) is None
    handler.close()


@pytest.mark.parametrize("others", [0, 2])
def test_a_coroutine_that_stops_its_own_threads_waits_for_none_and_leaves_no_loop(
    others: int,
) -> None:
    told: list[Any] = []

    async def work(one: int) -> None:
        if one == 0:
            told.append(threads.stop(None))
        else:
            await asyncio.sleep(0.1)

    numbers = iter(range(others + 1))
    threads = HandlerThreads(
        "it",
        work,
        NAME.removesuffix("-loop"),
        others + 1,
        lambda _: threads._handler(next(numbers)),
    )
    threads.start()
    eventually(lambda: not threads.is_running)
    assert told == [False]


def test_a_thread_that_was_stopped_before_it_began_keeps_no_loop_from_its_end() -> None:
    async def work() -> None: ...

    name = NAME.removesuffix("-loop")
    threads = HandlerThreads("it", work, name, 2, lambda _: threads._handler())
    threads._services[1].stop(0.0)
    threads.start()
    eventually(lambda: not threads.is_running)
