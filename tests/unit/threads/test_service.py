from __future__ import annotations

import logging
import random
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from mute import raising

from leaderq.testing import eventually
from leaderq.threads import Listeners, SerialExecutor, Service

NAME = "leaderq-test-service"
LONG_S = 60.0


class Work:
    runs = now = 0

    def run(self, service: Service) -> None:
        self.runs += 1
        self.now += 1
        try:
            while service.wait(LONG_S):
                pass
        finally:
            self.now -= 1


CALLERS = 6
Subject = tuple[Service, Callable[[], bool]]
"""A service that was not started, and whether its code runs now, or did so twice."""


def working() -> Subject:
    work = Work()
    return Service(NAME, work.run), lambda: work.now > 0 or work.runs > 1


def repeating() -> Subject:
    return Service.repeating(NAME, lambda: None), lambda: False


def running() -> int:
    return sum(thread.name == NAME for thread in threading.enumerate())


@pytest.mark.parametrize("made", [working, repeating])
def test_it_runs_from_its_start_to_its_stop_and_never_again(made):
    service, _ = made()
    assert running() == 0
    service.start()
    eventually(lambda: running() == 1)
    for _ in range(2):
        service.stop()
        service.start()
        service.wake()
        assert running() == 0


@pytest.mark.parametrize("made", [working, repeating])
def test_nothing_runs_after_a_stop_in_whatever_order_many_threads_call(made):
    interval_s = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads change often
    try:
        for seed in range(200):
            subject, faults = made(), []
            gate = threading.Barrier(CALLERS)
            with ThreadPoolExecutor(CALLERS) as pool:
                for number in range(CALLERS):
                    pool.submit(call, subject, gate, f"{seed} {number}", faults)
            subject[0].stop()
            assert not faults, f"seed {seed}: {faults}"
            assert running() == 0, f"seed {seed}"
    finally:
        sys.setswitchinterval(interval_s)


def call(subject: Subject, gate: threading.Barrier, seed: str, faults: list[object]) -> None:
    service, is_working = subject
    chance = random.Random(seed)
    try:
        gate.wait()
        for _ in range(25):
            act = chance.choices((service.start, service.wake, service.stop), (6, 6, 1))[0]
            act()
            if running() > 1:
                faults.append("two threads ran at once")
            if act == service.stop and is_working():
                faults.append("it worked after a stop had returned")
    except BaseException as error:
        faults.append(error)


def test_stopping_from_inside_ends_it_without_waiting_for_itself():
    answers: list[tuple[bool, bool]] = []

    def run(service: Service) -> None:
        while service.wait(0):
            answers.append((service.stop(), service.is_current))

    service = Service(NAME, run)
    service.start()
    eventually(lambda: not service.is_running)
    assert answers == [(False, True)]
    assert not service.is_current
    assert service.error is None


def test_a_stop_with_a_time_limit_tells_whether_it_has_ended():
    go_on = threading.Event()
    service = Service(NAME, lambda _: go_on.wait(LONG_S))
    service.start()
    assert service.stop(0) is False
    assert service.stop(0.01) is False
    assert service.is_stopping
    go_on.set()
    assert service.stop() is True


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(3), KeyboardInterrupt()])
def test_what_it_raises_is_kept_and_logged(error, caplog):
    service = Service(NAME, raising(error))
    with caplog.at_level(logging.ERROR):
        service.start()
        eventually(lambda: not service.is_running)
    assert service.stop()
    assert service.error is error
    assert f"background thread failed name={NAME}" in caplog.text


def test_a_step_is_repeated_after_its_pause_or_when_woken():
    pauses: list[float | None] = [0.0, 0.0, None, None]
    service = Service.repeating(NAME, lambda: pauses.pop(0))
    service.start()
    eventually(lambda: len(pauses) == 1)
    service.wake()
    eventually(lambda: not pauses)
    service.stop()
    assert service.error is None


def test_a_pause_is_ended_by_a_stop_but_not_by_a_wake_which_the_next_wait_gets():
    answers: list[bool] = []

    def run(service: Service) -> None:
        service.wake()
        answers.append(service.pause(0.01))
        answers.append(service.wait(LONG_S))  # ended by that wake
        answers.extend((service.pause(LONG_S), service.wait(), service.wait(LONG_S)))

    service = Service(NAME, run)
    service.start()
    eventually(lambda: len(answers) == 2)
    service.wake()
    assert service.is_running
    assert service.stop()
    assert answers == [True, True, False, False, False]


def test_a_start_for_which_the_system_has_no_thread_may_be_made_again(monkeypatch):
    work = Work()
    service = Service(NAME, work.run)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", raising(RuntimeError("can't start new thread")))
        with pytest.raises(RuntimeError, match="can't start"):
            service.start()
        executor = SerialExecutor(NAME)
        with pytest.raises(RuntimeError, match="can't start"):
            executor.submit(lambda: None)
    assert not service.is_running
    assert service.start()
    assert service.stop()
    assert work.runs == 1
    assert executor.submit(lambda: None).done(LONG_S)
    executor.close(LONG_S)


def test_one_that_was_started_runs_even_if_it_is_stopped_before_its_thread_comes_so_far(
    monkeypatch,
):
    gate, told = threading.Event(), []
    really_run = threading.Thread.run

    def run(thread: threading.Thread) -> None:
        if thread.name == NAME:
            gate.wait(LONG_S)
        really_run(thread)

    monkeypatch.setattr(threading.Thread, "run", run)
    work, listeners = Work(), Listeners[str](NAME, has_thread=True)
    service = Service(NAME, work.run)
    assert service.start()
    listeners.add(told.append)
    listeners.announce("put before the stop")
    assert not service.stop(0)
    assert not listeners.stop(0)
    gate.set()
    assert service.stop()
    assert listeners.stop(LONG_S)
    assert (work.runs, told) == (1, ["put before the stop"])


def test_a_stop_in_the_middle_of_a_start_does_not_wait_for_it(monkeypatch):
    work = Work()
    service = Service(NAME, work.run)
    really_start = threading.Thread.start
    answers: list[bool] = []

    def start(thread: threading.Thread) -> None:
        if thread.name == NAME:
            stopper = threading.Thread(target=lambda: answers.append(service.stop()))
            really_start(stopper)
            stopper.join()
        really_start(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    assert service.start()
    assert answers == [True]
    assert service.stop()
    assert work.runs == 0
