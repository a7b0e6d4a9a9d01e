"""One thread applies requests in order, and tells what became of each."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import Any

import pytest
from held import WAIT_S, Held, Told, in_thread

from leaderq.errors import ConfigurationError, DeadlineExceeded, WouldDeadlock
from leaderq.singular import SingularUpdateQueue
from leaderq.testing import eventually


class Rude(BaseException):
    """Not an Exception, and nothing that anybody expects."""


@pytest.mark.parametrize("kind", [Rude, GeneratorExit, asyncio.CancelledError, StopIteration])
def test_whatever_a_handler_raises_reaches_its_caller_and_the_queue_goes_on(kind) -> None:
    raised = kind()

    def handle(request: str) -> str:
        if request == "rude":
            raise raised
        return request

    async def use() -> None:
        with pytest.raises((kind, RuntimeError)) as caught:
            await asyncio.wait_for(queue.call("rude"), WAIT_S)
        assert kind in (type(caught.value), type(caught.value.__cause__))
        assert await asyncio.wrap_future(queue.submit("next")) == "next"
        assert await queue.call("next") == "next"

    with SingularUpdateQueue(handle, on_error=(told := Told())) as queue:
        error = queue.submit("rude").exception(WAIT_S)
        assert raised in (error, getattr(error, "__cause__", None))
        asyncio.run(use())
    assert queue.failure is None
    assert told.kinds == [("rude", kind)] * 2


def test_h9_all_that_is_wrong_with_the_options_is_told_at_once() -> None:
    wrong: dict[str, Any]
    for wrong in (
        {"capacity": 0, "timeout_s": -1, "deadline_s": -1, "max_batch": 0},
        {"capacity": 1.5, "timeout_s": "5", "deadline_s": math.nan, "max_batch": 2.0, "name": 7},
        {"capacity": True, "on_error": None},
    ):
        with pytest.raises(ConfigurationError) as caught:
            SingularUpdateQueue(print, **wrong)
        assert len(caught.value.problems) == len(wrong)


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


def test_a_handler_may_post_to_its_own_queue_though_it_is_full_and_may_not_wait_for_it() -> None:
    applied = []

    def count_down(n: int) -> None:
        applied.append(n)
        if n == 5:
            queue.submit(4).result(WAIT_S)
        for _ in range(min(n, 2)):
            queue.post(n - 1)

    queue = SingularUpdateQueue(count_down, name="q", capacity=1)
    queue.post(3)
    eventually(lambda: len(applied) == 1 + 2 + 4 + 4)
    with pytest.raises(WouldDeadlock, match="post_back"):
        queue.submit(5).result()
    assert queue.close()
    assert applied[:15] == [3, 2, 2, 1, 1, 1, 1, 0, 0, 0, 0, 5, 4, 3, 3]


def test_an_outcome_becomes_a_request_of_the_next_and_its_future_goes_along() -> None:
    first_told, second_told = Told(), Told()
    first = SingularUpdateQueue(lambda n: n - 1, on_error=first_told)
    second = SingularUpdateQueue(lambda text: 2 / float(text), on_error=second_told)
    assert first.then(second, str) is second
    with pytest.raises(ConfigurationError, match="ring"):
        second.then(first)
    with second, first:
        assert first.submit(3).result() == 1
        assert isinstance(first.submit(1).exception(), ZeroDivisionError)
        first.post(1)
        assert isinstance(first.submit("x").exception(), TypeError)
    assert first_told.kinds == [("x", TypeError)]
    assert second_told.kinds == [("0", ZeroDivisionError)] * 2
    assert (first.stats().applied, second.stats().applied) == (3, 1)


def test_who_waits_learns_of_a_missed_deadline_though_the_writer_is_busy() -> None:
    held, told = Held(), Told()
    with SingularUpdateQueue(held, on_error=told) as queue:
        queue.post("a")
        assert held.begun.wait(WAIT_S)
        for timeout in (None, WAIT_S):
            with pytest.raises(DeadlineExceeded):
                queue.submit("late", deadline_s=0.01).result(timeout)
        assert told.errors == []  # it is told on the writer's thread
        held.go.set()
    assert held.applied == ["a"]
    assert told.kinds == [("late", DeadlineExceeded)] * 2


@pytest.mark.parametrize("timeout", [None, WAIT_S])
def test_one_who_waits_beyond_the_deadline_gets_what_was_begun_in_time(at, timeout) -> None:
    steps = threading.Semaphore(0)

    def stepwise(letter: str) -> str:
        assert steps.acquire(timeout=WAIT_S)
        return letter

    with SingularUpdateQueue(stepwise) as queue:
        queue.post("a")
        future = queue.submit("b", deadline_s=0.05)
        thread, outcome = in_thread(future.result, timeout)
        steps.release()
        eventually(future.running)
        at[0] += 6
        assert not future.expire_if_due()
        assert outcome == []
        steps.release()
        thread.join(WAIT_S)
    assert outcome == ["b"]


def test_a_listener_that_returns_work_which_nobody_would_do_is_told(caplog):
    with SingularUpdateQueue(lambda n: 1 / n, on_error=lambda *_: (one for one in "a")) as queue:
        queue.post(0)
    assert "on_error returned" in caplog.text
