"""Abandoning a unit of work from another thread."""

from __future__ import annotations

import threading

from leaderq.running import UnitAbandoned
from leaderq.running.stages import AbandonableUnit


def spin() -> None:
    while True:
        pass


def test_a_unit_that_returns_is_not_abandoned():
    done: list[int] = []
    assert AbandonableUnit().run(lambda: done.append(1))
    assert done == [1]


def test_a_spinning_unit_is_abandoned_and_cleans_up():
    unit, running, cleaned = AbandonableUnit(), threading.Event(), []

    def work() -> None:
        try:
            running.set()
            spin()
        finally:
            cleaned.append(True)

    stopper = threading.Thread(target=lambda: (running.wait(), unit.abandon()))
    stopper.start()
    assert not unit.run(work)
    stopper.join()
    assert cleaned == [True]


def test_except_exception_in_the_users_code_does_not_swallow_it():
    unit, running = AbandonableUnit(), threading.Event()

    def stubborn() -> None:
        while True:
            try:
                running.set()
                spin()
            except Exception:
                continue

    stopper = threading.Thread(target=lambda: (running.wait(), unit.abandon()))
    stopper.start()
    assert not unit.run(stubborn)
    stopper.join()


def test_no_unit_begins_after_the_abandonment():
    unit, done = AbandonableUnit(), []
    unit.abandon()
    assert not unit.run(lambda: done.append(1))
    assert done == []


def test_an_abandonment_that_races_the_end_of_a_unit_never_strikes_what_follows():
    for _ in range(2000):
        unit, started = AbandonableUnit(), threading.Event()
        stopper = threading.Thread(
            target=lambda unit=unit, started=started: (started.wait(), unit.abandon())
        )
        stopper.start()
        try:
            unit.run(started.set)
            for _ in range(50):
                pass
        except UnitAbandoned as escaped:
            raise AssertionError("the code after the unit was struck") from escaped
        stopper.join()


def test_an_abandonment_between_the_end_of_a_unit_and_its_leaving_does_not_strike_what_follows():
    class AbandonedAtItsSecondEntry:
        """The lock of a unit that is abandoned when it has returned and is about to leave."""

        def __init__(self) -> None:
            self.lock, self.entries = threading.Lock(), 0

        def __enter__(self) -> None:
            if threading.current_thread() is threading.main_thread():
                self.entries += 1
                if self.entries == 2:
                    stopper = threading.Thread(target=unit.abandon)
                    stopper.start()
                    stopper.join()
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    unit, done = AbandonableUnit(), []
    unit._lock = AbandonedAtItsSecondEntry()
    assert not unit.run(lambda: done.append(1))
    assert done == [1]
    assert unit._lock.entries == 3
