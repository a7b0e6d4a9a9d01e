from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from leaderq.testing import eventually
from leaderq.threads.event_loops import awaited, calls_told


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    """What the calls of a test wait for; opened at its end."""
    opened = threading.Event()
    yield opened
    opened.set()


async def abandoned(call: Any, once: Callable[[], object], **how: Any) -> None:
    """Await ``call``, and be cancelled when ``once`` returns, of which the loop notices nothing."""
    task = asyncio.create_task(awaited(call, "call", **how))
    await asyncio.sleep(0)
    once()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_it_returns_and_raises_what_the_call_does_on_a_thread_of_its_own():
    async def main() -> None:
        assert await awaited(lambda: threading.current_thread().name, "errand") == "errand"
        with pytest.raises(ZeroDivisionError):
            await awaited(lambda: 1 // 0, "errand")

    asyncio.run(main())


@pytest.mark.parametrize("raises", [False, True])
def test_a_call_that_is_abandoned_is_asked_to_end_and_what_it_returns_is_put_back(gate, raises):
    begun, back, ended = threading.Event(), [], []

    def take() -> str:
        begun.set()
        gate.wait()
        if raises:
            raise ValueError
        return "item"

    async def main() -> None:
        calls_told.set(lambda call: call.add_done_callback(ended.append))
        await abandoned(take, begun.wait, give_up=gate.set, put_back=back.append)

    asyncio.run(main())
    eventually(lambda: ended)
    eventually(lambda: back == ([] if raises else ["item"]))


def test_what_came_in_the_moment_of_the_cancellation_is_put_back():
    back: list[str] = []
    told: list[Future[Any]] = []

    async def main() -> None:
        calls_told.set(told.append)
        await abandoned(lambda: "item", lambda: told[0].result(), put_back=back.append)

    asyncio.run(main())
    assert back == ["item"]


def test_an_abandoned_call_that_no_thread_of_the_pool_has_begun_is_never_made(gate):
    made: list[str] = []
    with ThreadPoolExecutor(1) as pool:
        pool.submit(gate.wait)
        call = abandoned(lambda: made.append("made"), list, pool=pool, put_back=made.append)
        asyncio.run(call)
        gate.set()
    assert made == []
