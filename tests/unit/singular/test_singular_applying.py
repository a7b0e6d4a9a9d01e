"""One thread applies requests in order, and tells what became of each."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from held import WAIT_S, Told

from leaderq.errors import ConfigurationError
from leaderq.singular import SingularUpdateQueue


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


def test_a_handler_that_raises_fails_the_whole_batch() -> None:
    told = Told()

    def fail(batch: list[int]) -> None:
        raise OSError("disk full")

    with SingularUpdateQueue(fail, max_batch=10, on_error=told) as queue:
        tickets = [queue.submit(number) for number in range(3)]
        assert {type(ticket.exception()) for ticket in tickets} == {OSError}
    assert told.kinds == [(0, OSError), (1, OSError), (2, OSError)]
