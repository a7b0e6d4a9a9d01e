"""One thread applies requests in order, and tells what became of each."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from held import WAIT_S, Held, Told

from leaderq.errors import ConfigurationError
from leaderq.singular import SingularUpdateQueue


def test_requests_are_applied_in_the_order_of_their_coming() -> None:
    applied: list[int] = []
    with SingularUpdateQueue(applied.append) as queue:
        for number in range(0, 1000, 2):
            queue.post(number)
            queue.submit(number + 1)
    assert applied == list(range(1000))


def test_submit_gives_the_outcome() -> None:
    with SingularUpdateQueue(lambda n: n * 2, name="doubling") as queue:
        assert queue.submit(21).result(WAIT_S) == 42
        assert queue.submit(4).result() == 8


def test_an_error_reaches_the_ticket_and_the_listener_and_the_queue_goes_on() -> None:
    told = Told()
    with SingularUpdateQueue(lambda n: 1 / n, on_error=told) as queue:
        ticket = queue.submit(0)
        assert isinstance(ticket.exception(), ZeroDivisionError)
        with pytest.raises(ZeroDivisionError):
            ticket.result()
        assert told.errors == [(0, ticket.exception())]
        assert queue.submit(2).result() == 0.5
    assert queue.stats().failed == 1
    assert queue.stats().applied == 1


def test_an_error_of_a_posted_request_reaches_the_listener() -> None:
    told = Told()
    with SingularUpdateQueue(lambda n: 1 / n, on_error=told) as queue:
        queue.post(0)
        queue.post(1)
    assert told.kinds == [(0, ZeroDivisionError)]


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


@pytest.mark.parametrize("error", [GeneratorExit(), BaseException("odd")])
def test_an_odd_base_exception_fails_its_request_only(error: BaseException) -> None:
    held, told = Held(), Told()
    held.go.set()
    with SingularUpdateQueue(held, on_error=told) as queue:
        assert queue.submit(error).exception() is error
        assert queue.submit(1).result() == 1
    assert told.errors == [(error, error)]


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
    with pytest.raises(ConfigurationError) as caught:
        SingularUpdateQueue(print, capacity=0, timeout_s=-1, deadline_s=-1, max_batch=0)  # type: ignore[call-overload]
    assert len(caught.value.problems) == 4
    with pytest.raises(ConfigurationError):
        SingularUpdateQueue(print, timeout_s=float("nan"))


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
