"""Users who do what the documentation does not mention: a queue takes it, or says so at once."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import ctypes
import gc
import logging
import math
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from held import WAIT_S, Held, Told, in_thread, writers_of

from leaderq.errors import ConfigurationError, QueueClosed
from leaderq.singular import SingularUpdateQueue
from leaderq.testing import eventually


class Rude(BaseException):
    """Not an Exception, and nothing that anybody expects."""


# -- posts by signal handlers and finalizers, in whatever they interrupt ------------------------


def interrupted_in(queue: SingularUpdateQueue[Any, Any], by: Any) -> None:
    """Have the next producer that waits for room interrupted once while it holds the lock."""
    mailbox = queue._mailbox
    admit = mailbox.admit

    def interrupted() -> None:
        mailbox.admit = admit  # type: ignore[method-assign]
        by()
        admit()

    mailbox.admit = interrupted  # type: ignore[method-assign]


def test_a_signal_handler_that_posts_to_a_full_queue_in_the_midst_of_a_post_is_not_stuck() -> None:
    held = Held()
    queue: SingularUpdateQueue[str, str] = SingularUpdateQueue(held, capacity=1)
    queue.post("in hand")
    assert held.begun.wait(WAIT_S)
    queue.post("waits")
    interrupted_in(queue, lambda: queue.post("handler"))
    producer, outcome = in_thread(queue.post, "interrupted")
    eventually(lambda: queue.depth == 2)
    assert queue.stats().waiting == 1
    held.go.set()
    producer.join(WAIT_S)
    assert outcome == [None]
    eventually(lambda: len(held.applied) == 4)
    assert len(queue._mailbox._permits) == 1, "the room is what it was"
    assert queue.close(timeout_s=WAIT_S)
    assert held.applied == ["in hand", "waits", "handler", "interrupted"]


def test_a_timer_that_posts_all_the_time_neither_blocks_nor_doubles_nor_loses_anything() -> None:
    applied: list[int] = []
    came = iter(range(10**9))
    sent: list[int] = []
    is_handling = threading.Lock()
    queue: SingularUpdateQueue[int, None] = SingularUpdateQueue(applied.append, capacity=3)

    def on_alarm(*_: object) -> None:
        if is_handling.acquire(blocking=False):  # on a slow machine alarms would nest without end
            number = next(came)
            queue.post(number)
            sent.append(number)
            is_handling.release()

    before = signal.signal(signal.SIGALRM, on_alarm)
    signal.setitimer(signal.ITIMER_REAL, 0.000_3, 0.000_3)
    try:
        while len(sent) < 8_000:
            number = next(came)
            queue.post(number)
            sent.append(number)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert queue.close(timeout_s=WAIT_S)
    assert sorted(applied) == sorted(sent)


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


def test_a_handler_may_close_cancel_and_submit_to_its_own_queue() -> None:
    seen: list[object] = []

    def handle(request: str) -> str:
        if request == "close":
            seen.append(queue.close())
            for post in (queue.post, queue.submit):
                with pytest.raises(QueueClosed):
                    post("late")
        if request == "cancel":
            seen.append([future.cancel() for future in futures])
        return request

    queue: SingularUpdateQueue[str, str] = SingularUpdateQueue(handle)
    futures = [queue.submit(word) for word in ("cancel", "gone", "gone too")]
    queue.submit("close").result(WAIT_S)
    assert queue.close(timeout_s=WAIT_S)
    assert seen[-1] is False
    assert seen[0] in ([False, True, True], [True, True, True], [])


# -- time-outs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_s", [math.inf, 1e30, 10**40])
def test_any_length_of_time_is_a_time_out(timeout_s: float) -> None:
    held = Held()
    queue: SingularUpdateQueue[str, str] = SingularUpdateQueue(
        held, capacity=1, timeout_s=timeout_s
    )
    queue.post("a")
    assert held.begun.wait(WAIT_S)
    queue.post("b")
    waiting, outcome = in_thread(queue.post, "c")
    task, called = in_thread(lambda: asyncio.run(queue.call("d", timeout_s=timeout_s)))
    eventually(lambda: queue.stats().waiting == 2)
    held.go.set()
    for thread in (waiting, task):
        thread.join(WAIT_S)
    assert (outcome, called) == ([None], ["d"])
    assert queue.submit("e", deadline_s=timeout_s).result(WAIT_S) == "e"
    assert queue.close(timeout_s=timeout_s)


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


def test_a_loop_closed_under_its_tasks_hurts_neither_the_queue_nor_what_they_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = Held()
    queue: SingularUpdateQueue[str, str] = SingularUpdateQueue(held, capacity=1)
    queue.post("in hand")
    assert held.begun.wait(WAIT_S)
    loop = asyncio.new_event_loop()
    tasks = [loop.create_task(queue.call("waits")), loop.create_task(queue.call("for room"))]
    for _ in range(3):
        loop.run_until_complete(asyncio.sleep(0))
    assert queue.stats().waiting == 1 and queue.depth == 1
    loop.close()
    held.go.set()
    assert queue.submit("next").result(WAIT_S) == "next"
    assert queue.close(timeout_s=WAIT_S)
    assert held.applied == ["in hand", "waits", "for room", "next"]
    with caplog.at_level(logging.CRITICAL, logger="asyncio"):
        del tasks
        gc.collect()


@pytest.fixture(autouse=True)
def _is_collected() -> Iterator[None]:
    gc.freeze()  # what other tests have left is none of its business, and takes a while to look at
    yield
    gc.collect()
    gc.unfreeze()
    assert threading.active_count() < 200


# -- threads that are killed


@pytest.mark.parametrize("max_batch", [None, 4])
def test_a_writer_killed_while_it_waits_tells_whoever_comes_next(max_batch: int | None) -> None:
    """The interpreter raises what was thrown when the wait returns, with a request in its hand."""
    told = Told()
    queue: SingularUpdateQueue[Any, Any] = SingularUpdateQueue(
        lambda request: request, on_error=told, max_batch=max_batch
    )
    queue.start()
    (writer,) = writers_of(queue.name)
    eventually(lambda: writer.ident)
    if writer.ident:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(
            ctypes.c_ulong(writer.ident), ctypes.py_object(Rude)
        )
    futures = []
    with contextlib.suppress(QueueClosed):
        while True:
            futures.append(queue.submit("next"))
            time.sleep(0)
    assert all(future.exception(WAIT_S) for future in futures if not future.cancelled())
    assert not queue.close(timeout_s=WAIT_S)
    assert isinstance(queue.failure, Rude)
    stats = queue.stats()
    assert stats.accepted == len(futures) == stats.failed + stats.cancelled + stats.applied
