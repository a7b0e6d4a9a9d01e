"""Depth, age of the oldest, and the account of every request; waits that would never end."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from held import WAIT_S, Held, Told, in_thread

from leaderq.errors import WouldDeadlock
from leaderq.singular import SingularUpdateQueue
from leaderq.singular.writer import AgeMarks
from leaderq.testing import eventually


class Clock:
    """Stands where it is put."""

    def __init__(self) -> None:
        self.at_s = 1000.0

    def __call__(self) -> float:
        return self.at_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of the figures."""
    clock = Clock()
    monkeypatch.setattr("leaderq.clock.now_s", clock)
    return clock


def test_a_queue_at_rest_shows_nothing() -> None:
    queue = SingularUpdateQueue(lambda n: n, name="q")
    assert (queue.depth, queue.stats().oldest_age_s) == (0, 0.0)
    assert repr(queue) == "<SingularUpdateQueue 'q', new, 0 waiting>"
    queue.submit(1).result()
    assert repr(queue) == "<SingularUpdateQueue 'q', working, 0 waiting>"
    queue.close()
    assert repr(queue) == "<SingularUpdateQueue 'q', closed, 0 waiting>"


def test_who_waited_for_an_outcome_finds_it_counted() -> None:
    for options in ({}, {"max_batch": 4}):
        with SingularUpdateQueue(lambda n: None, on_error=Told(), **options) as queue:  # type: ignore[call-overload]
            for number in range(1, 200):
                queue.submit(number).result()
                found = queue.stats()
                assert (found.accepted, found.applied, found.in_hand) == (number, number, 0)


def test_the_request_in_hand_does_not_wait() -> None:
    held = Held()
    with SingularUpdateQueue(held) as queue:
        for number in range(5):
            queue.post(number)
        assert held.begun.wait(WAIT_S)
        eventually(lambda: queue.stats().in_hand == 1)
        found = queue.stats()
        assert (found.accepted, found.depth, found.in_hand, found.applied) == (5, 4, 1, 0)
        held.go.set()
    found = queue.stats()
    assert (found.accepted, found.depth, found.in_hand, found.applied) == (5, 0, 0, 5)


def test_the_oldest_has_waited_since_the_writer_began_what_it_has_in_hand(clock: Clock) -> None:
    held = Held()
    with SingularUpdateQueue(held) as queue:
        queue.post("a")
        assert held.begun.wait(WAIT_S)
        assert queue.stats().oldest_age_s == 0
        clock.at_s += 3
        assert queue.stats().oldest_age_s == 0  # nobody waits
        queue.post("b")
        clock.at_s += 2
        # 2 in truth: never less, and more by one call of the handler at most
        assert queue.stats().oldest_age_s == 5
        held.go.set()


def test_the_age_is_never_less_than_the_truth_and_hardly_more(clock: Clock) -> None:
    """Ten come in where five are taken, with the writer looking up each tenth of a second."""
    marks = AgeMarks()
    came_s: list[float] = []
    for look in range(400):
        came_s.extend([clock.at_s] * 10)
        begun = 5 * (look + 1)
        marks.note(begun, len(came_s))
        clock.at_s += 0.1
        truth_s = clock.at_s - came_s[begun]
        assert truth_s - 1e-6 <= marks.oldest_age_s(begun) <= truth_s * 1.02 + 0.21


def test_the_marks_by_which_the_age_is_known_stay_few(clock: Clock) -> None:
    marks = AgeMarks()
    for begun in range(100_000):
        clock.at_s += 0.01
        marks.note(begun, 200_000)
    assert len(marks._marks) < 1500


def test_what_a_batch_passed_over_is_not_in_hand() -> None:
    steps = threading.Semaphore(0)
    begun: list[list[str]] = []

    def stepwise(batch: list[str]) -> None:
        begun.append(batch)
        assert steps.acquire(timeout=WAIT_S)

    with SingularUpdateQueue(stepwise, max_batch=3) as queue:
        queue.post("a")
        eventually(lambda: begun == [["a"]])
        cancelled = queue.submit("b")
        queue.post("c")
        assert cancelled.cancel()
        steps.release()
        eventually(lambda: begun == [["a"], ["c"]])
        found = queue.stats()
        assert (found.accepted, found.in_hand, found.applied, found.cancelled) == (3, 1, 1, 1)
        steps.release()


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


def test_a_handler_may_ask_a_future_that_is_done_and_wait_for_another_queue() -> None:
    futures: list[Any] = []

    def handle(request: int) -> Any:
        return request or futures[0].result() + other.submit(4).result()

    with SingularUpdateQueue(lambda n: n * 2) as other, SingularUpdateQueue(handle) as queue:
        futures.append(queue.submit(1))
        assert futures[0].result() == 1
        assert queue.submit(0).result() == 9


def test_who_writes_nothing_may_wait_for_anything() -> None:
    held = Held()
    with SingularUpdateQueue(held) as queue:
        waits = [in_thread(queue.submit(number).result) for number in range(4)]
        held.go.set()
        for thread, _ in waits:
            thread.join(WAIT_S)
    assert [outcome for _, outcome in waits] == [[0], [1], [2], [3]]
