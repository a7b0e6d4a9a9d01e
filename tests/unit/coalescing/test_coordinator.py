"""What the coordinator answers, on one thread wherever that is enough."""

from __future__ import annotations

import signal
import threading
import traceback
from concurrent.futures import Future

import pytest

from leaderq.coalescing import Debounce, EnqueueOutcome, QueueCoordinator, Token, TrafficState
from leaderq.errors import CoordinatorClosed, WaitTimedOut, WouldDeadlock
from leaderq.testing import eventually


def test_an_offer_whose_call_fails_gives_way_and_the_dequeuer_does_not_notice(caplog):
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    third: list[Token[str]] = []

    def fail(token: object) -> None:
        third.append(coordinator.offer("k", print))
        raise RuntimeError("no")

    first = coordinator.offer("k", fail)
    coordinator.offer("k", fail)
    assert coordinator.dequeue(first)
    assert third[0].has_waited and third[0]
    assert "the key goes to the next" in caplog.text


def test_it_is_an_error_at_once_to_wait_for_oneself():
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    with coordinator.hold("k") as token, coordinator.hold("other") as other:
        for ask in (
            coordinator.enqueue,
            lambda key: coordinator.run(key, lambda: None),
            lambda key: coordinator.hold(key).__enter__(),
        ):
            with pytest.raises(WouldDeadlock, match="wait for itself"):
                ask("k")
        assert token and other and coordinator.state("k") is TrafficState.PROCESS
        later = coordinator.offer("k", print)
    assert later
    assert coordinator.state("other") is TrafficState.INIT


def test_draining_lets_in_nobody_and_lets_those_who_wait_run_for_so_long(pool):
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    head = coordinator.enqueue("k")
    tail = coordinator.offer("k", lambda token: None)
    stuck = coordinator.enqueue("stuck", owner=None)
    waits = pool.submit(coordinator.enqueue, "stuck")
    eventually(lambda: coordinator.stats().waiting == 2)
    drained = pool.submit(coordinator.drain, 1)

    def is_closed() -> bool:
        try:
            coordinator.dequeue(coordinator.offer("other", print))
        except CoordinatorClosed:
            return True
        return False

    eventually(is_closed)
    coordinator.dequeue(head)
    assert tail
    coordinator.dequeue(tail)
    assert drained.result(60) == (stuck,)
    with pytest.raises(CoordinatorClosed):
        waits.result(60)
    assert coordinator.dequeue(stuck)
    assert coordinator.drain(0) == ()


def test_f11_a_scope_that_is_dropped_under_the_lock_releases_its_key_with_the_next_event():
    """The garbage collector may close a generator at any moment."""
    coordinator: QueueCoordinator[str] = QueueCoordinator()

    def holder():
        with coordinator.hold("k") as token:
            yield token

    generator = holder()
    assert next(generator)
    with coordinator._keys._lock:
        del generator
    assert coordinator.state("k") is TrafficState.PROCESS
    assert coordinator.offer("k", print)


def test_f12_a_thread_interrupted_while_it_waits_leaves_the_line():
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    head = coordinator.enqueue("k", owner=None)

    def interrupt() -> None:
        eventually(lambda: coordinator.state("k") is TrafficState.BLOCK)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    helper = threading.Thread(target=interrupt)
    helper.start()
    with pytest.raises(KeyboardInterrupt):
        coordinator.enqueue("k")
    helper.join()
    assert coordinator.state("k") is TrafficState.PROCESS and head
    assert coordinator.dequeue(head) and coordinator.state("k") is TrafficState.INIT


def test_a_debounce_window_ends_by_itself(pool):
    coordinator: QueueCoordinator[str] = QueueCoordinator(debounce=Debounce(0.02, 0.1))

    def work(_: int) -> EnqueueOutcome:
        with coordinator.hold("k") as token:
            return token.outcome

    outcomes = set(pool.map(work, range(8)))
    assert EnqueueOutcome.BLOCK in outcomes and EnqueueOutcome.ACCEPT not in outcomes
    assert coordinator.drain(10) == ()
    eventually(lambda: coordinator._keys._timer is None)


def test_f9_what_was_to_be_looked_at_is_forgotten_with_its_key():
    coordinator: QueueCoordinator[int] = QueueCoordinator(safe_timeout_s=60)
    for key in range(1_000):
        head = coordinator.offer(key, print)
        coordinator.dequeue(coordinator.offer(key, print))
        coordinator.dequeue(head)
    assert len(coordinator._keys._looks) < 100


class Work:
    def __init__(self) -> None:
        self.runs = 0
        self.begun = threading.Semaphore(0)
        self.outcome: Future[object] = Future()

    def __call__(self) -> object:
        self.runs += 1
        self.begun.release()
        return self.outcome.result(120)


def test_with_one_waiter_declined_requests_get_the_result_of_the_waiting_run_not_the_running(pool):
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    first, second = Work(), Work()
    one = pool.submit(coordinator.run, "k", first)
    assert first.begun.acquire(timeout=60)
    others = [pool.submit(coordinator.run, "k", second) for _ in range(10)]
    eventually(lambda: coordinator.stats().declined == 9)
    first.outcome.set_result("old")
    second.outcome.set_result("new")
    assert one.result(60) == "old"
    assert [other.result(60) for other in others] == ["new"] * 10
    assert (first.runs, second.runs) == (1, 1)


def test_an_exception_is_shared_with_the_traceback_of_the_run(pool):
    coordinator: QueueCoordinator[str] = QueueCoordinator(waiters=0)
    work = Work()
    callers = [pool.submit(coordinator.run, "k", work) for _ in range(5)]
    eventually(lambda: coordinator.stats().declined == 4)
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
    eventually(lambda: coordinator.stats().declined == 1)
    work.outcome.set_result("done")
    interrupted.outcome.set_exception(SystemExit())
    assert other.result(60) == "done"
    assert type(one.exception(60)) is SystemExit


def test_the_followers_of_one_that_gives_up_waiting_ask_again(pool, at):
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    head = coordinator.enqueue("k", owner=None)
    impatient = pool.submit(coordinator.run, "k", lambda: "impatient", timeout_s=0.05)
    eventually(lambda: coordinator.state("k") is TrafficState.BLOCK)
    follower = pool.submit(coordinator.run, "k", lambda: "follower")
    eventually(lambda: coordinator.stats().declined == 1)
    at[0] += 0.05
    with pytest.raises(WaitTimedOut, match="1 that relied on it") as caught:
        impatient.result(60)
    assert caught.value.covers == 1
    eventually(lambda: coordinator.state("k") is TrafficState.BLOCK)
    coordinator.dequeue(head)
    assert follower.result(60) == "follower"


def test_followers_of_an_evicted_run_ask_again_and_its_own_caller_still_gets_its_result(pool):
    coordinator: QueueCoordinator[str] = QueueCoordinator(waiters=0, safe_timeout_s=0.05)
    slow = Work()
    one = pool.submit(coordinator.run, "k", slow)
    assert slow.begun.acquire(timeout=60)
    assert coordinator.run("k", lambda: "own") == "own"
    slow.outcome.set_result("late")
    assert one.result(60) == "late"
    assert coordinator.stats().evicted == 1


def test_a_key_that_cannot_be_hashed_is_refused_and_leaves_nothing():
    coordinator: QueueCoordinator[object] = QueueCoordinator()
    with pytest.raises(TypeError):
        coordinator.enqueue([])
    assert coordinator.stats().running == 0
