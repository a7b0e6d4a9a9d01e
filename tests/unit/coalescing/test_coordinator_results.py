"""Sharing what a run gave: results, exceptions, and what happens if there is none."""

from __future__ import annotations

import threading
import traceback
from concurrent.futures import Future

import pytest

from leaderq.coalescing import QueueCoordinator, TrafficState
from leaderq.errors import WaitTimedOut
from leaderq.testing import eventually


class Work:
    """A function that runs until it is told what to give."""

    def __init__(self) -> None:
        self.runs = 0
        self.begun = threading.Semaphore(0)
        self.outcome: Future[object] = Future()

    def __call__(self) -> object:
        self.runs += 1
        self.begun.release()
        return self.outcome.result(120)


def asked(coordinator: QueueCoordinator[str], declined: int) -> None:
    eventually(lambda: coordinator.stats().declined == declined)


def test_without_waiters_all_get_the_result_of_the_one_that_runs(pool):
    coordinator: QueueCoordinator[str] = QueueCoordinator(waiters=0)
    work = Work()
    callers = [pool.submit(coordinator.run, "k", work) for _ in range(10)]
    asked(coordinator, 9)
    work.outcome.set_result(object())
    assert len({id(caller.result(60)) for caller in callers}) == 1
    assert work.runs == 1 and coordinator.stats().shared == 9


def test_with_one_waiter_declined_requests_get_the_result_of_the_waiting_run_not_the_running(
    pool,
):
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    first, second = Work(), Work()
    one = pool.submit(coordinator.run, "k", first)
    assert first.begun.acquire(timeout=60)
    others = [pool.submit(coordinator.run, "k", second) for _ in range(10)]
    asked(coordinator, 9)
    first.outcome.set_result("old")
    second.outcome.set_result("new")
    assert one.result(60) == "old"
    assert [other.result(60) for other in others] == ["new"] * 10
    assert (first.runs, second.runs) == (1, 1)


def test_an_exception_is_shared_with_the_traceback_of_the_run(pool):
    coordinator: QueueCoordinator[str] = QueueCoordinator(waiters=0)
    work = Work()
    callers = [pool.submit(coordinator.run, "k", work) for _ in range(5)]
    asked(coordinator, 4)
    work.outcome.set_exception(KeyError("gone"))
    errors = [caller.exception(60) for caller in callers]
    assert [type(error) for error in errors] == [KeyError] * 5
    assert "in __call__" in "".join(traceback.format_exception(errors[0]))
    assert coordinator.state("k") is TrafficState.INIT


def test_an_interrupt_is_not_shared_and_another_runs_instead(pool):
    coordinator: QueueCoordinator[str] = QueueCoordinator(waiters=0)
    interrupted, work = Work(), Work()
    one = pool.submit(coordinator.run, "k", interrupted)
    assert interrupted.begun.acquire(timeout=60)
    other = pool.submit(coordinator.run, "k", work)
    asked(coordinator, 1)
    work.outcome.set_result("done")
    interrupted.outcome.set_exception(SystemExit())
    assert other.result(60) == "done"
    assert type(one.exception(60)) is SystemExit
    assert coordinator.stats().orphaned == 1


def test_the_followers_of_one_that_gives_up_waiting_ask_again(pool, monkeypatch):
    now = [0.0]  # the machine's clock stands until the follower has come
    monkeypatch.setattr("leaderq.clock.now_s", lambda: now[0])
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    head = coordinator.enqueue("k", owner=None)
    impatient = pool.submit(coordinator.run, "k", lambda: "impatient", timeout_s=0.05)
    eventually(lambda: coordinator.state("k") is TrafficState.BLOCK)
    follower = pool.submit(coordinator.run, "k", lambda: "follower")
    asked(coordinator, 1)
    now[0] = 0.05
    with pytest.raises(WaitTimedOut):
        impatient.result(60)
    eventually(lambda: coordinator.state("k") is TrafficState.BLOCK)
    coordinator.dequeue(head)
    assert follower.result(60) == "follower"


def test_a_run_by_hand_has_no_result_to_share_so_its_followers_run(pool):
    coordinator: QueueCoordinator[str] = QueueCoordinator(waiters=0)
    head = coordinator.enqueue("k", owner=None)
    follower = pool.submit(coordinator.run, "k", lambda: "own")
    asked(coordinator, 1)
    coordinator.dequeue(head)
    assert follower.result(60) == "own"


def test_followers_of_an_evicted_run_ask_again_and_its_own_caller_still_gets_its_result(pool):
    now = [0.0]
    coordinator: QueueCoordinator[str] = QueueCoordinator(
        waiters=0, safe_timeout_s=5, clock=lambda: now[0], background=False
    )
    slow = Work()
    one = pool.submit(coordinator.run, "k", slow)
    assert slow.begun.acquire(timeout=60)
    follower = pool.submit(coordinator.run, "k", lambda: "own")
    asked(coordinator, 1)
    now[0] = 6.0
    coordinator.sweep()
    assert follower.result(60) == "own"
    slow.outcome.set_result("late")
    assert one.result(60) == "late"


def test_a_decorated_function_gives_everybody_the_shared_result(pool):
    coordinator: QueueCoordinator[int] = QueueCoordinator(waiters=0)
    work = Work()

    @coordinator.coalesced(key=lambda number: number, share=True)
    def load(number: int) -> object:
        return work()

    callers = [pool.submit(load, 1) for _ in range(4)]
    eventually(lambda: coordinator.stats().declined == 3)
    work.outcome.set_result(42)
    assert [caller.result(60) for caller in callers] == [42] * 4 and work.runs == 1
