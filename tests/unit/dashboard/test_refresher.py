"""One reading for all who look, none if nobody does."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from leaderq.admin.queue_states import Contents
from leaderq.dashboard.refresher import Refresher
from leaderq.dashboard.snapshot import PageSnapshot
from leaderq.errors import ConnectionLost, SessionClosed
from leaderq.testing import eventually

Wanted = frozenset[str]


class Readings:
    """Counts what is read, and holds a reading up while ``may_go`` is not set."""

    def __init__(self) -> None:
        self.wanted: list[Wanted] = []
        self.error: Exception | None = None
        self.may_go = threading.Event()
        self.may_go.set()

    def __call__(self, before: PageSnapshot, wanted: Wanted) -> PageSnapshot:
        self.wanted.append(wanted)
        assert self.may_go.wait(60)
        if self.error is not None:
            raise self.error
        contents = {path: Contents() for path in wanted}
        return replace(before, number=before.number + 1, contents=contents, problem=None)


@pytest.fixture
def readings() -> Readings:
    return Readings()


@pytest.fixture
def made(readings: Readings) -> Iterator[Callable[[float], Refresher]]:
    running: list[Refresher] = []

    def start(every_s: float) -> Refresher:
        running.append(Refresher(readings, every_s))
        running[-1].start()
        return running[-1]

    yield start
    for one in running:
        one.stop()


def test_nobody_who_looks_costs_nothing_and_many_cost_as_much_as_one(readings, made) -> None:
    refresher = made(3600.0)
    assert refresher.after().result(60).number == 1
    assert all(refresher.after().result(60).number == 1 for _ in range(100))
    assert len(readings.wanted) == 1


def test_who_waits_gets_the_next_reading_and_waiting_is_what_makes_it(readings, made) -> None:
    refresher = made(0.01)
    numbers = []
    for seen in range(5):
        numbers.append(refresher.after(seen).result(60).number)
    assert numbers == sorted(set(numbers))
    read = len(readings.wanted)
    assert refresher.after(numbers[-1]).result(60).number == read + 1


def test_one_who_has_left_is_nobody(readings, made) -> None:
    refresher = made(0.01)
    seen = refresher.after().result(60).number
    refresher.stop()
    read = len(readings.wanted)
    refresher = made(0.01)
    readings.may_go.clear()
    first = refresher.after(0)
    eventually(lambda: len(readings.wanted) == read + 1)
    gone = refresher.after(seen + 10)
    gone.cancel()
    readings.may_go.set()
    assert first.result(60).number == 1
    last = refresher.after(1)
    assert last.result(60).number == 2
    assert len(readings.wanted) == read + 2


def test_a_queues_contents_are_read_for_those_who_look_at_it(readings, made) -> None:
    refresher = made(0.01)
    assert refresher.after(wants="/q").result(60).contents == {"/q": Contents()}
    refresher.after(1).result(60)
    assert readings.wanted == [frozenset({"/q"}), frozenset()]


def test_one_who_comes_during_a_reading_without_it_waits_for_the_next(readings, made) -> None:
    refresher = made(0.01)
    readings.may_go.clear()
    first = refresher.after()
    eventually(lambda: bool(readings.wanted))
    second = refresher.after(wants="/q")
    readings.may_go.set()
    assert first.result(60).number == 1
    assert second.result(60).number == 2
    assert readings.wanted == [frozenset(), frozenset({"/q"})]


@pytest.mark.parametrize("error", [ConnectionLost("no answer"), RuntimeError("a fault of ours")])
def test_a_reading_that_fails_is_told_and_the_next_is_good(readings, made, error) -> None:
    refresher = made(0.01)
    before = refresher.after().result(60)
    readings.error = error
    failing = refresher.after(before.number).result(60)
    assert str(error) in str(failing.problem)
    assert refresher.after(failing.number).result(60).failing_since_ms == failing.failing_since_ms
    readings.error = None
    eventually(lambda: refresher.after().result(60).problem is None)


def test_who_waits_at_the_end_is_not_left_waiting(readings, made) -> None:
    refresher = made(3600.0)
    seen = refresher.after().result(60).number
    waiting = refresher.after(seen)
    refresher.stop()
    for one in (waiting, refresher.after(seen)):
        with pytest.raises(SessionClosed):
            one.result(60)
