"""What everything that starts and stops threads has to keep; to be put through it, subclass it.

```python
class TestWatcher(StartStopContract):
    def subject(self) -> Subject:
        watcher = Watcher(...)
        return Subject(watcher.start, watcher.stop, threads_named("leaderq-watcher"), watcher.wake)
```
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from leaderq.testing import eventually

CALLERS = 6
CALLS = 25
ROUNDS = 200


@dataclass(frozen=True)
class Subject:
    """One object that was not started yet."""

    start: Callable[[], object]
    stop: Callable[[], object]
    """Waits until nothing of it runs."""
    running: Callable[[], int]
    """How many threads run for it now."""
    wake: Callable[[], object] = lambda: None
    is_working: Callable[[], bool] | None = None
    """Where it can be told: whether its code runs now. Must be false once any stop has returned."""


def threads_named(name: str) -> Callable[[], int]:
    """Counts the living threads of this name."""
    return lambda: sum(thread.name == name for thread in threading.enumerate())


class StartStopContract:
    """For objects that run once: a stop is final. All of it holds for calls from any thread."""

    def subject(self) -> Subject:
        """A new one."""
        raise NotImplementedError

    @pytest.fixture(autouse=True)
    def _threads_change_often(self) -> Iterator[None]:
        interval_s = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        yield
        sys.setswitchinterval(interval_s)

    def test_it_runs_once_it_is_started_and_no_longer_than_its_stop(self):
        subject = self.subject()
        assert subject.running() == 0
        subject.start()
        eventually(lambda: subject.running() == 1)
        subject.stop()
        assert subject.running() == 0

    def test_stopped_twice_or_before_it_is_started_it_stays_stopped(self):
        subject = self.subject()
        subject.stop()
        subject.stop()
        subject.start()
        subject.wake()
        assert subject.running() == 0
        subject.stop()

    def test_nothing_runs_after_a_stop_in_whatever_order_many_threads_call(self):
        for seed in range(ROUNDS):
            subject = self.subject()
            faults: list[object] = []
            gate = threading.Barrier(CALLERS)
            callers = []
            for number in range(CALLERS):
                args = (subject, gate, f"{seed} {number}", faults)
                callers.append(threading.Thread(target=_call, args=args))
            for caller in callers:
                caller.start()
            for caller in callers:
                caller.join()
            subject.stop()
            assert not faults, f"seed {seed}: {faults}"
            assert subject.running() == 0, f"seed {seed}"


def _call(subject: Subject, gate: threading.Barrier, seed: str, faults: list[object]) -> None:
    chance = random.Random(seed)
    try:
        gate.wait()
        for _ in range(CALLS):
            call = chance.choices((subject.start, subject.wake, subject.stop), (6, 6, 1))[0]
            call()
            if subject.running() > 1:
                faults.append("two threads ran at once")
            if call == subject.stop and subject.is_working is not None and subject.is_working():
                faults.append("it worked after a stop had returned")
    except BaseException as error:
        faults.append(error)
