"""Closing: drain or cancel, with a time-out, from any thread, as often as wanted; and forks."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from concurrent.futures import CancelledError, wait

import pytest
from forks import in_child
from held import WAIT_S, Held, Told, in_thread

from leaderq.errors import QueueClosed, RequestCancelled
from leaderq.singular import SingularUpdateQueue


@pytest.mark.parametrize("max_batch", [None, 10])
def test_closing_without_draining_cancels_what_is_not_begun(
    max_batch: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    held, told = Held(), Told()
    handler = (lambda batch: [held(one) for one in batch]) if max_batch else held
    queue = SingularUpdateQueue(handler, on_error=told, name="q", max_batch=max_batch)  # type: ignore[call-overload]
    first = queue.submit("a")
    assert held.begun.wait(WAIT_S)
    ticket, own = queue.submit("b"), queue.submit("own")
    queue.post("c")
    own.cancel()
    with caplog.at_level(logging.WARNING, logger="leaderq"):
        assert not queue.close(drain=False, timeout_s=0)
    with pytest.raises(CancelledError):
        ticket.result()
    assert told.kinds == [("b", RequestCancelled), ("c", RequestCancelled)]
    assert "requests cancelled name=q count=3" in caplog.text
    assert not wait([ticket, own], timeout=0).not_done
    held.go.set()
    assert queue.close()
    assert first.result() == "a"
    stats = queue.stats()
    assert (stats.accepted, stats.applied, stats.cancelled, stats.depth) == (4, 1, 3, 0)


@pytest.mark.parametrize("drain", [True, False])
def test_many_threads_may_close_at_once(drain: bool) -> None:
    told = Told()
    queue = SingularUpdateQueue(lambda n: n, on_error=told)
    for number in range(200):
        queue.post(number)
    closing = [in_thread(lambda: queue.close(drain=drain)) for _ in range(8)]
    for thread, _ in closing:
        thread.join(WAIT_S)
    assert [outcome for _, outcome in closing] == [[True]] * 8
    stats = queue.stats()
    assert stats.accepted == 200 == stats.applied + stats.cancelled
    assert len(told.errors) == stats.cancelled


@pytest.mark.parametrize("drain", [True, False])
def test_the_handler_may_close_its_own_queue(drain: bool) -> None:
    closed: list[bool] = []
    told = Told()

    def handle(letter: str) -> str:
        held(letter)
        if letter == "close":
            closed.append(queue.close(drain=drain))
        return letter

    held = Held()
    queue = SingularUpdateQueue(handle, on_error=told)
    first = queue.submit("close")
    queue.post("after")
    held.go.set()
    assert first.result(WAIT_S) == "close"
    assert queue.close()
    assert closed == [False]
    assert held.applied == (["close", "after"] if drain else ["close"])
    assert [request for request, _ in told.errors] == ([] if drain else ["after"])


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
def test_a_handler_that_wants_out_ends_the_queue_and_all_are_told(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    held, told = Held(), Told()
    queue = SingularUpdateQueue(held, on_error=told, name="q")
    error = kind("out")
    first, second = queue.submit(error), queue.submit("b")
    queue.post("c")
    held.go.set()
    with pytest.raises(kind):
        first.result()
    with pytest.raises(CancelledError):
        second.result()
    assert not queue.close()
    assert queue.failure is error
    with pytest.raises(QueueClosed) as caught:
        queue.post("late")
    assert caught.value.__cause__ is error
    assert [request for request, _ in told.errors] == [error, "b", "c"]
    assert "queue gave up name=q" in caplog.text
    assert held.applied == []


AT_EXIT = """
import sys, threading
from leaderq.singular import SingularUpdateQueue, writer
held, begun = threading.Event(), threading.Event()
def apply(n):
    if n < 0:
        begun.set()
        held.wait()
    print(n, flush=True)
if sys.argv[1] == "stuck":
    writer.AT_EXIT_S = 0.1
queue = SingularUpdateQueue(apply, name="forgotten")
queue.post(-1 if sys.argv[1] == "stuck" else 0)
for n in range(1, 4):
    queue.post(n)
if sys.argv[1] == "stuck":
    begun.wait()
"""


def test_a_forgotten_queue_is_drained_when_the_interpreter_exits() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT, "quick"],
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=True,
    )
    assert done.stdout.split() == ["0", "1", "2", "3"]
    assert done.stderr == ""


@pytest.mark.parametrize("capacity", [None, 2])
def test_a_child_is_refused_and_the_parent_goes_on(capacity: int | None) -> None:
    held = Held()
    parent = os.getpid()
    with SingularUpdateQueue(held, capacity=capacity) as queue:
        first, second = queue.submit("a"), queue.submit("b")
        assert held.begun.wait(WAIT_S)

        def refused() -> None:
            for use in (
                queue.post,
                queue.submit,
                lambda _: first.result(),
                lambda _: second.exception(WAIT_S),
            ):
                with pytest.raises(QueueClosed, match=f"belongs to process {parent}"):
                    use("c")
            assert queue.is_closed
            assert not queue.close(timeout_s=WAIT_S)
            with queue:
                pass

        in_child(refused)
        queue.post("d")
        held.go.set()
    assert held.applied == ["a", "b", "d"]
