from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from leaderq.admin.queue_states import Contents
from leaderq.admin.snapshot import PageSnapshot
from leaderq.dashboard.refresher import Refresher
from leaderq.errors import ConnectionLost, SessionClosed
from leaderq.testing import eventually

Wanted = frozenset[str]
Made = Callable[[float], Refresher]


class Readings:
    """Keeps what was wanted of each reading, and holds one up while ``may_go`` is not set."""

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
def made(readings: Readings) -> Iterator[Made]:
    running: list[Refresher] = []

    def start(every_s: float) -> Refresher:
        running.append(Refresher(readings, every_s))
        running[-1].start()
        return running[-1]

    yield start
    for one in running:
        one.stop()


def test_nobody_who_waits_and_one_who_has_left_cost_nothing(readings: Readings, made: Made) -> None:
    refresher = made(0.01)
    numbers = [refresher.after(seen).result(60).number for seen in range(5)]
    assert numbers == sorted(set(numbers))
    readings.may_go.clear()
    waiting = refresher.after(numbers[-1])
    eventually(lambda: len(readings.wanted) == numbers[-1] + 1)
    gone = refresher.after(numbers[-1] + 10)
    gone.cancel()
    readings.may_go.set()
    assert waiting.result(60).number == numbers[-1] + 1
    assert refresher.after(numbers[-1] + 1).result(60).number == numbers[-1] + 2
    assert len(readings.wanted) == numbers[-1] + 2


def test_contents_are_read_for_those_who_want_them_also_if_they_come_during_a_reading(
    readings: Readings, made: Made
) -> None:
    refresher = made(0.01)
    readings.may_go.clear()
    first = refresher.after()
    eventually(lambda: bool(readings.wanted))
    second = refresher.after(wants="/q")
    readings.may_go.set()
    assert first.result(60).number == 1
    assert second.result(60).contents == {"/q": Contents()}
    refresher.after(2).result(60)
    assert readings.wanted == [frozenset(), frozenset({"/q"}), frozenset()]


def test_a_queue_that_nobody_looked_at_is_read_without_waiting_for_the_pace(
    readings: Readings, made: Made
) -> None:
    refresher = made(3600.0)
    assert refresher.after().result(60).number == 1
    follower = refresher.after(1)
    assert refresher.after(wants="/q").result(60).contents == {"/q": Contents()}
    assert follower.result(60).number == 2
    assert refresher.after(wants="/q").result(60).number == 2
    assert not refresher.after(2, wants="/q").done()
    assert len(readings.wanted) == 2


@pytest.mark.parametrize("error", [ConnectionLost("no answer"), RuntimeError("a fault of ours")])
def test_a_reading_that_fails_is_told_and_the_next_is_good(
    readings: Readings, made: Made, error: Exception
) -> None:
    refresher = made(0.01)
    before = refresher.after().result(60)
    readings.error = error
    failing = refresher.after(before.number).result(60)
    assert str(error) in str(failing.problem)
    assert refresher.after(failing.number).result(60).failing_since_ms == failing.failing_since_ms
    readings.error = None
    eventually(lambda: refresher.after().result(60).problem is None)


def test_who_waits_at_the_end_is_told(readings: Readings, made: Made) -> None:
    refresher = made(3600.0)
    seen = refresher.after().result(60).number
    waiting = refresher.after(seen)
    refresher.stop()
    for one in (waiting, refresher.after(seen)):
        with pytest.raises(SessionClosed):
            one.result(60)
