"""Depth, age of the oldest, rate, and the account of every request."""

from __future__ import annotations

import threading
from queue import SimpleQueue

import pytest
from held import WAIT_S, Held, Told

from leaderq.singular import SingularUpdateQueue, account
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
    monkeypatch.setattr(account, "now_s", clock)
    return clock


def test_a_queue_at_rest_shows_nothing() -> None:
    queue = SingularUpdateQueue(lambda n: n, name="q")
    assert (queue.depth, queue.oldest_age_s, queue.rate_per_s) == (0, 0.0, 0.0)
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
                stats = queue.stats()
                assert (stats.accepted, stats.applied, stats.in_hand) == (number, number, 0)


def test_the_request_in_hand_is_not_in_the_line() -> None:
    held = Held()
    with SingularUpdateQueue(held) as queue:
        for number in range(5):
            queue.post(number)
        assert held.begun.wait(WAIT_S)
        eventually(lambda: queue.stats().in_hand == 1)
        stats = queue.stats()
        assert (stats.accepted, stats.depth, stats.in_hand, stats.applied) == (5, 4, 1, 0)
        held.go.set()
    stats = queue.stats()
    assert (stats.accepted, stats.depth, stats.in_hand, stats.applied) == (5, 0, 0, 5)


def test_the_oldest_that_waits_has_waited_since_the_writer_began_what_it_has_in_hand(clock: Clock) -> None:
    held = Held()
    with SingularUpdateQueue(held) as queue:
        queue.post("a")
        assert held.begun.wait(WAIT_S)
        assert queue.oldest_age_s == 0
        clock.at_s += 3
        assert queue.oldest_age_s == 0  # nobody waits
        queue.post("b")
        clock.at_s += 2
        assert queue.oldest_age_s == 5  # 2 in truth: never less, and more by one call of the handler at most
        held.go.set()


def test_the_age_follows_the_line(clock: Clock) -> None:
    """Ten requests come in each second, and none is handled for long; the handler then works on the very oldest."""
    steps = [Held() for _ in range(40)]

    def stepwise(number: int) -> None:
        steps[number](number)

    with SingularUpdateQueue(stepwise, capacity=1000, low=0) as queue:
        came_s = []
        for number in range(40):
            came_s.append(clock.at_s)
            queue.post(number)
            if number == 0:
                assert steps[0].begun.wait(WAIT_S)
            clock.at_s += 0.1
        for number in range(39):
            steps[number].go.set()
            assert steps[number + 1].begun.wait(WAIT_S)
            truth_s = clock.at_s - came_s[number + 2] if number < 38 else 0.0
            assert queue.oldest_age_s >= truth_s - 1e-6
            assert queue.oldest_age_s <= (clock.at_s - came_s[0] if number < 38 else 0.0) + 1e-6
            clock.at_s += 0.01
        steps[39].go.set()


def test_the_rate_is_that_of_the_last_ten_seconds(clock: Clock) -> None:
    with SingularUpdateQueue(lambda n: None) as queue:
        for _ in range(20):
            for number in range(50):
                queue.submit(number).result()
            clock.at_s += 1
        assert queue.rate_per_s == pytest.approx(50, rel=0.15)
        clock.at_s += 5
        assert queue.rate_per_s == pytest.approx(25, rel=0.3)
        clock.at_s += 6
        assert queue.rate_per_s == 0
        clock.at_s += 3600
        for number in range(100):
            queue.submit(number).result()
        clock.at_s += 1
        assert queue.rate_per_s == pytest.approx(10, rel=0.1)


def test_a_young_queue_has_the_rate_of_its_life(clock: Clock) -> None:
    with SingularUpdateQueue(lambda n: None) as queue:
        for number in range(100):
            queue.submit(number).result()
        clock.at_s += 2
        assert queue.rate_per_s == pytest.approx(50)


def test_the_marks_by_which_the_age_is_known_stay_few(clock: Clock) -> None:
    """However long the line, and however long it has been so."""
    queue = SingularUpdateQueue(lambda n: None)
    marks = queue._account._marks
    for number in range(200_000):
        queue._line.put(number)
    for taken in range(100_000):
        clock.at_s += 0.01
        queue._account.begin(taken, account.NO_TURNS, 1, was_idle=False)
    assert len(marks) < 1500


def test_the_age_is_never_less_than_the_truth_and_hardly_more(clock: Clock) -> None:
    """Ten come in where five are taken, with the writer looking up each tenth of a second."""
    line: SimpleQueue[float] = SimpleQueue()
    figures = account.Account(line)
    came_s: list[float] = []
    for look in range(400):
        for _ in range(10):
            came_s.append(clock.at_s)
            line.put(clock.at_s)
        for _ in range(5):
            line.get()
        figures.begin(5 * (look + 1), account.NO_TURNS, 1, was_idle=False)
        clock.at_s += 0.1
        truth_s = clock.at_s - came_s[5 * (look + 1)]
        assert truth_s - 1e-6 <= figures.oldest_age_s() <= truth_s * 1.02 + 0.21


def test_of_a_chunk_of_tickets_the_next_is_in_hand_when_one_has_ended() -> None:
    steps = threading.Semaphore(0)
    begun: list[str] = []

    def stepwise(letter: str) -> None:
        begun.append(letter)
        assert steps.acquire(timeout=WAIT_S)

    with SingularUpdateQueue(stepwise) as queue:
        tickets = [queue.submit(letter) for letter in "abcd"]
        for number, ticket in enumerate(tickets[:-1], 1):
            steps.release()
            ticket.result(WAIT_S)
            eventually(lambda number=number: len(begun) == number + 1)
            stats = queue.stats()
            assert (stats.accepted, stats.depth, stats.in_hand, stats.applied) == (4, 3 - number, 1, number)
        steps.release()


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
        stats = queue.stats()
        assert (stats.accepted, stats.in_hand, stats.applied, stats.cancelled) == (3, 1, 1, 1)
        steps.release()
