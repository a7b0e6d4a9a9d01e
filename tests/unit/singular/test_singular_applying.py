"""One thread applies requests in order, and tells what became of each."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from held import WAIT_S, Told

from leaderq.errors import ConfigurationError, WouldDeadlock
from leaderq.singular import SingularUpdateQueue


@pytest.mark.parametrize("error", [RuntimeError("broken listener"), SystemExit(3)])
def test_a_listener_that_fails_is_logged_and_the_queue_goes_on(
    caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    def broken(request: object, failure: BaseException) -> None:
        raise error

    with SingularUpdateQueue(lambda n: 1 / n, on_error=broken) as queue:
        queue.post(0)
        assert queue.submit(1).result() == 1
    assert "listener" in caplog.text
    assert queue.failure is None


def test_a_handler_may_post_to_its_own_queue() -> None:
    applied = []

    def count_down(n: int) -> None:
        applied.append(n)
        if n:
            queue.post(n - 1)
        else:
            done.set()

    done = threading.Event()
    with SingularUpdateQueue(count_down) as queue:
        queue.post(3)
        assert done.wait(WAIT_S)
    assert applied == [3, 2, 1, 0]


def test_all_that_is_wrong_with_the_options_is_told_at_once() -> None:
    wrong: dict[str, Any]
    for wrong in (
        {"capacity": 0, "timeout_s": -1, "deadline_s": -1, "max_batch": 0},
        {"capacity": 1.5, "timeout_s": "5", "deadline_s": math.nan, "max_batch": 2.0, "name": 7},
        {"capacity": True, "on_error": None},
    ):
        with pytest.raises(ConfigurationError) as caught:
            SingularUpdateQueue(print, **wrong)
        assert len(caught.value.problems) == len(wrong)


async def _async_handler(request: object) -> None: ...


def _generator(request: object) -> Iterator[object]:
    yield request


class _AsyncCall:
    async def __call__(self, request: object) -> None: ...


@pytest.mark.parametrize(
    "given", [None, 7, _async_handler, _generator, partial(_async_handler, 1), _AsyncCall()]
)
def test_what_would_not_run_when_it_is_called_is_refused(given: Any) -> None:
    queue: SingularUpdateQueue[Any, Any] = SingularUpdateQueue(print)
    for use in (
        SingularUpdateQueue,
        lambda given: SingularUpdateQueue(print, on_error=given),
        queue.post_back,
    ):
        with pytest.raises(ConfigurationError, match=r"plain function|cannot be called"):
            use(given)
    if given is not None:
        with pytest.raises(ConfigurationError):
            queue.then(SingularUpdateQueue(print), given)


def test_a_handler_that_raises_fails_the_whole_batch() -> None:
    told = Told()

    def fail(batch: list[int]) -> None:
        raise OSError("disk full")

    with SingularUpdateQueue(fail, max_batch=10, on_error=told) as queue:
        tickets = [queue.submit(number) for number in range(3)]
        assert {type(ticket.exception()) for ticket in tickets} == {OSError}
    assert told.kinds == [(0, OSError), (1, OSError), (2, OSError)]


@pytest.mark.parametrize("timeout", [None, WAIT_S])
def test_a_handler_that_waits_for_its_own_queue_is_told_so(timeout: float | None) -> None:
    told = Told()

    def handle(request: str) -> Any:
        return queue.submit("inner").result(timeout) if request == "outer" else request

    with SingularUpdateQueue(handle, name="q", on_error=told) as queue:
        error = queue.submit("outer").exception()
        assert isinstance(error, WouldDeadlock)
        assert "'q'" in str(error)
        assert "post_back" in str(error)
    assert told.kinds == [("outer", WouldDeadlock)]
    assert queue.stats().applied == 1


def test_an_outcome_becomes_a_request_of_the_next_and_a_ticket_goes_along() -> None:
    written: list[int] = []

    def write(n: int) -> int:
        written.append(n)
        return n + 1

    applied: list[str] = []

    def apply(text: str) -> str:
        applied.append(text)
        return text * 2

    first, second = SingularUpdateQueue(write), SingularUpdateQueue(apply)
    assert first.then(second, str) is second
    with second, first:
        assert first.submit(41).result() == "4242"
        first.post(1)
    assert written == [41, 1]
    assert applied == ["42", "2"]
    assert (first.stats().applied, second.stats().applied) == (2, 2)


def test_an_error_in_a_later_queue_reaches_the_ticket_and_that_queues_listener() -> None:
    first_told, second_told = Told(), Told()
    first = SingularUpdateQueue(lambda n: n, on_error=first_told)
    second = SingularUpdateQueue(lambda n: 1 / n, on_error=second_told)
    first.then(second)
    with second, first:
        assert isinstance(first.submit(0).exception(), ZeroDivisionError)
        first.post(0)
    assert first_told.errors == []
    assert second_told.kinds == [(0, ZeroDivisionError)] * 2


def test_a_ring_of_queues_is_refused() -> None:
    queues = [SingularUpdateQueue(lambda n: n) for _ in range(3)]
    queues[0].then(queues[1]).then(queues[2])
    for queue in queues:
        with pytest.raises(ConfigurationError, match="ring"):
            queues[2].then(queue)


# -- users who do what the documentation does not mention: a queue takes it, or says so at once


class Rude(BaseException):
    """Not an Exception, and nothing that anybody expects."""


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
