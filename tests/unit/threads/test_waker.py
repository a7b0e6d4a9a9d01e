from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mute import raising

from leaderq.base.clock import now_s
from leaderq.errors import ConfigurationError
from leaderq.testing.waiting import patience
from leaderq.threads import Backoff, Retry, TaskWaker, Waker
from leaderq.threads.waker import bounded_s

LONG_S = 60.0


def test_a_wake_before_the_wait_is_not_lost_and_several_count_as_one():
    waker = Waker()
    waker.wake()
    waker.wake()
    assert waker.wait() is True
    assert waker.wait(0) is False


@pytest.mark.parametrize("timeout_s", [0, -1, 0.001])
def test_a_wait_that_nobody_ends_says_so(timeout_s):
    assert Waker().wait(timeout_s) is False
    assert bounded_s(timeout_s) == max(timeout_s, 0)


@pytest.mark.parametrize("timeout_s", [None, math.inf, LONG_S])
def test_another_thread_ends_the_wait(timeout_s):
    waker = Waker()
    other = threading.Timer(0.01, waker.wake)
    other.start()
    assert waker.wait(timeout_s) is True
    other.join()


def test_wake_may_interrupt_a_wake_or_a_wait_of_its_own_thread_at_any_line():
    """As signal handlers and finalizers do: it takes no lock that the interrupted code may hold."""
    source = """
import sys
from leaderq.threads import Waker

def interrupt(frame, event, arg):
    waker.wake()
    return interrupt

waker = Waker()
sys.settrace(interrupt)
waker.wake()
answer = waker.wait(60)
waker.wake()
sys.settrace(None)
assert answer
"""
    subprocess.run([sys.executable, "-c", source], timeout=30 * patience(), check=True)


def test_two_who_wake_at_once_wake_one_waiter():
    waker, unlocked = Waker(), RuntimeError("release unlocked lock")
    # a lock that another thread releases between a look at it and its release
    waker._lock = SimpleNamespace(locked=lambda: True, release=raising(unlocked))
    waker.wake()


def test_a_task_is_woken_by_any_thread_and_not_once_its_loop_is_closed():
    async def waiting() -> TaskWaker:
        waker = TaskWaker()
        await waker.wait(0.01)  # nobody wakes it
        for timeout_s in (LONG_S, None):
            threading.Timer(0.02, waker.wake).start()
            await waker.wait(timeout_s)
        assert waker.wake()
        await waker.wait(0.05)  # at once
        before_s = now_s()
        await waker.wait(0.2)  # neither that wake nor the former time-out ends it
        assert 0.15 < now_s() - before_s < LONG_S / 2
        return waker

    assert asyncio.run(waiting()).wake() is False


POLICY = Retry(first_s=0.5, most_s=3.0, jitter=0.5)


def test_it_is_tried_again_for_ever_from_50_ms_to_a_minute_unless_attempts_are_counted():
    assert Retry() == Retry(None, 0.05, 60.0, 2.0, 0.5)
    assert not Retry().is_exhausted(1_000_000)
    assert Retry(attempts=1).is_exhausted(1)
    assert [Retry(attempts=3).is_exhausted(failures) for failures in (2, 3, 4)] == [0, 1, 1]


def test_delays_double_up_to_the_most_and_none_is_due_without_a_failure():
    assert [POLICY.delay_s(failures, 0) for failures in range(6)] == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]
    assert Retry(first_s=0.0).delay_s(10_000, 0.0) == 0.0  # a power beyond all floats


@given(
    first_s=st.floats(0, 10),
    more_s=st.floats(0, 1000),
    factor=st.floats(1, 10),
    jitter=st.floats(0, 1),
    failures=st.integers(1, 10**6),
    chance=st.floats(0, 1),
)
def test_a_delay_never_shrinks_with_failures_and_stays_within_its_bounds(
    first_s, more_s, factor, jitter, failures, chance
):
    policy = Retry(first_s=first_s, most_s=first_s + more_s, factor=factor, jitter=jitter)
    full_s = policy.delay_s(failures, 0)
    assert first_s <= full_s <= policy.most_s
    assert full_s <= policy.delay_s(failures + 1, 0)
    assert full_s * (1 - jitter) <= policy.delay_s(failures, chance) <= full_s


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"attempts": 0}, ["attempts=0"]),
        ({"attempts": True}, ["attempts=True"]),
        ({"first_s": -1, "jitter": 1.5}, ["first_s=-1", "jitter=1.5"]),
        ({"factor": 0.5, "most_s": float("nan")}, ["most_s=nan", "factor=0.5"]),
        ({"jitter": -0.1}, ["jitter=-0.1"]),
    ],
)
def test_every_number_that_cannot_be_used_is_named(wrong, named):
    with pytest.raises(ConfigurationError) as refused:
        Retry(**wrong)
    assert [problem.partition(":")[0] for problem in refused.value.problems] == named


def test_a_backoff_counts_failures_in_a_row():
    backoff = Backoff(replace(POLICY, jitter=0.0))
    assert [backoff.next_s() for _ in range(3)] == [0.5, 1.0, 2.0]
    assert backoff.failures == 3
    backoff.reset()
    assert backoff.next_s() == 0.5


def test_a_signal_handler_ends_the_wait_of_its_own_thread():
    waker = Waker()
    before = signal.signal(signal.SIGUSR1, lambda *_: waker.wake())
    other = threading.Timer(0.01, lambda: os.kill(os.getpid(), signal.SIGUSR1))
    try:
        other.start()
        assert waker.wait(LONG_S) is True
    finally:
        other.join()
        signal.signal(signal.SIGUSR1, before)


def test_every_number_is_a_time_out_for_the_standard_library():
    bounded = [bounded_s(one) for one in (-1, 0.0, 2.5, 1e300, float("inf"), float("nan"))]
    assert bounded == [0.0, 0.0, 2.5, threading.TIMEOUT_MAX, threading.TIMEOUT_MAX, 0.0]
