"""Users who do what the documentation does not mention: a queue takes it, or says so at once."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import gc
import math
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from held import WAIT_S, Held, Told

from leaderq.errors import ConfigurationError
from leaderq.singular import SingularUpdateQueue


class Rude(BaseException):
    """Not an Exception, and nothing that anybody expects."""


# -- posts by signal handlers and finalizers, in whatever they interrupt ------------------------


# -- what handlers, listeners and callbacks raise --------------------------------------------------


@pytest.mark.parametrize("kind", [Rude, GeneratorExit, asyncio.CancelledError, StopIteration])
def test_whatever_a_handler_raises_reaches_its_caller_and_the_queue_goes_on(
    kind: type[BaseException],
) -> None:
    raised = kind()

    def handle(request: str) -> str:
        if request == "rude":
            raise raised
        return request

    async def use() -> None:
        with pytest.raises((type(raised), RuntimeError)) as caught:
            await asyncio.wait_for(queue.call("rude"), WAIT_S)
        assert type(raised) in (type(caught.value), type(caught.value.__cause__))
        assert await queue.call("next") == "next"

    with SingularUpdateQueue(handle, on_error=(told := Told())) as queue:
        future = queue.submit("rude")
        error = future.exception(WAIT_S)
        assert raised in (error, getattr(error, "__cause__", None))
        assert queue.submit("next").result(WAIT_S) == "next"
        asyncio.run(use())
    assert queue.failure is None
    assert [kind for _, kind in told.kinds] == [type(raised)] * 2


@pytest.mark.parametrize("raised", [Rude, asyncio.CancelledError, SystemExit, KeyboardInterrupt])
def test_a_callback_that_raises_anything_is_its_owners_business(
    raised: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    def callback(_: concurrent.futures.Future[str]) -> None:
        raise raised

    called: list[str] = []
    held = Held()
    with SingularUpdateQueue(held) as queue:
        future = queue.submit("a")
        future.add_done_callback(callback)
        future.add_done_callback(lambda future: called.append(future.result()))
        held.go.set()
        assert queue.submit("b").result(WAIT_S) == "b"
    assert queue.failure is None and held.applied == ["a", "b"]
    assert called == ["a"], "callbacks behind it are called"
    assert raised.__name__ in caplog.text


@pytest.mark.parametrize("max_batch", [None, 10])
def test_an_outcome_set_by_somebody_else_costs_nobody_his(
    max_batch: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    held = Held()

    def handle(given: Any) -> Any:
        return held(given) if max_batch is None else [held(one) for one in given]

    queue: SingularUpdateQueue[str, str] = SingularUpdateQueue(handle, max_batch=max_batch)  # type: ignore[call-overload]
    futures = [queue.submit(letter) for letter in "abc"]
    assert held.begun.wait(WAIT_S)
    futures[0].set_result("mine")
    with contextlib.suppress(concurrent.futures.InvalidStateError):
        futures[1].set_exception(Rude())
    held.go.set()
    assert futures[2].result(WAIT_S) == "c"
    assert queue.close(timeout_s=WAIT_S)
    assert futures[0].result(0) == "mine" and queue.failure is None


# -- time-outs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [-1.0, math.nan, "1", True])
def test_what_is_no_time_is_refused_whether_the_queue_is_full_or_not(wrong: Any) -> None:
    with SingularUpdateQueue(lambda request: request, capacity=1) as queue:
        for ask in (queue.post, queue.submit):
            with pytest.raises(ConfigurationError, match="timeout_s"):
                ask("a", timeout_s=wrong)  # type: ignore[operator]
            with pytest.raises(ConfigurationError, match="deadline_s"):
                ask("a", deadline_s=wrong)  # type: ignore[operator]
        with pytest.raises(ConfigurationError, match="timeout_s"):
            queue.close(timeout_s=wrong)
        for ask_async in (queue.apost, queue.call):
            with pytest.raises(ConfigurationError, match="timeout_s"):
                asyncio.run(ask_async("a", timeout_s=wrong))  # type: ignore[arg-type]
        assert queue.stats().accepted == 0


# -- loops that end


@pytest.fixture(autouse=True)
def _is_collected() -> Iterator[None]:
    gc.freeze()  # what other tests have left is none of its business, and takes a while to look at
    yield
    gc.collect()
    gc.unfreeze()
    assert threading.active_count() < 200


# -- threads that are killed
