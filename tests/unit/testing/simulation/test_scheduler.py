"""Tasks, time and primitives of a simulated life."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from leaderq.testing.simulation import primitives as simulated
from leaderq.testing.simulation import scheduler
from leaderq.testing.simulation.scheduler import Killed, LifeHangs, World


@pytest.fixture
def world() -> Iterator[World]:
    made = World(7)
    simulated.set_world(made)
    yield made
    made.bury()
    simulated.set_world(None)


def lived(world: World, code: Callable[[], object], seconds: float = 60.0) -> None:
    task = world.process("one").spawn(code, "main")
    world.run(seconds)
    assert task.done, world.stacks()
    assert not [line for line in world.lines() if "task failed" in line]


# -- the same contract, for the standard library's and for the simulated ones ----------------------

NAMES = ("Lock", "RLock", "Condition", "Event", "Thread")
REAL = SimpleNamespace(
    Queue=queue.Queue, local=threading.local, **{name: getattr(threading, name) for name in NAMES}
)
SIMULATED = SimpleNamespace(
    local=simulated.SimulatedLocal,
    **{name: getattr(simulated, f"Simulated{name}") for name in (*NAMES, "Queue")},
)


def contract(code: Callable[[Any], None]) -> Callable[[str], None]:
    """A test of the standard library's and of the simulated ones, these under 20 seeds."""

    @pytest.mark.parametrize("which", ["real", "simulated"])
    def test(which: str) -> None:
        if which == "real":
            code(REAL)
            return
        for seed in range(20):
            world = World(seed, preempt=2)
            simulated.set_world(world)
            try:
                lived(world, lambda: code(SIMULATED))
            finally:
                world.bury()
                simulated.set_world(None)

    return test


def three(of: Any, work: Callable[[], object]) -> list[Any]:
    threads = [of.Thread(target=work) for _ in range(3)]
    for one in threads:
        one.start()
    return threads


def joined(threads: list[Any]) -> None:
    for one in threads:
        one.join()


@contract
def test_a_lock_is_held_by_one_and_not_had_in_time_by_another(of):
    lock, inside, most = of.Lock(), [0], [0]

    def work() -> None:
        for _ in range(10):
            with lock:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                of.Event().wait(0.0001)
                inside[0] -= 1

    joined(three(of, work))
    assert most == [1]
    assert not lock.locked()
    with pytest.raises(RuntimeError):
        lock.release()
    assert lock.acquire()
    assert not lock.acquire(blocking=False)
    assert not lock.acquire(timeout=0.01)
    lock.release()
    assert lock.acquire(timeout=0.01)


@contract
def test_a_condition_wakes_those_who_wait(of):
    changed, seen, values = of.Condition(), [], []

    def wait() -> None:
        with changed:
            seen.append(changed.wait_for(lambda: values, timeout=60))

    threads = three(of, wait)
    with changed:
        values.append(1)
        changed.notify_all()
    joined(threads)
    assert seen == [[1]] * 3
    with changed:
        assert not changed.wait(0.01)
    with pytest.raises(RuntimeError):
        changed.notify()


# -- processes and time ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("freeze", "ends_s", "passed_s"), [("freeze", 5.0, 5.0), ("freeze_with_clock", 5.5, 1.0)]
)
def test_a_frozen_process_goes_on_where_it_was_and_its_clock_ran_unless_it_stood_too(
    world, freeze, ends_s, passed_s
):
    process, seen = world.process("one"), []

    def work() -> None:
        began_s = process.clock_s()
        world.park(1.0)
        seen.append((world.now_s, process.clock_s() - began_s))

    process.spawn(work, "main")
    world.at(0.5, getattr(process, freeze))
    world.at(5.0, process.thaw)
    world.run(10.0)
    assert seen == [(pytest.approx(ends_s), pytest.approx(passed_s))]


def test_an_exception_can_be_raised_in_a_task_that_waits(world):
    process, seen = world.process("one"), []

    def work() -> None:
        try:
            world.park(1.0)
        except ZeroDivisionError:
            seen.append(world.now_s)

    task = process.spawn(work, "main")
    world.at(0.2, lambda: simulated.raise_in(task.number, ZeroDivisionError))
    world.run(10.0)
    assert seen == [1.0]  # as in reality: when the call that blocks returns


def test_a_life_in_which_time_stands_still_is_told_with_all_stacks(world, monkeypatch):
    monkeypatch.setattr(scheduler, "_MOST_STEPS_AT_ONCE", 1000)

    def spin_in_here() -> None:
        while True:
            world.pause_point()

    world.process("one").spawn(spin_in_here, "spinner")
    world.process("two").spawn(spin_in_here, "other spinner")
    with pytest.raises(LifeHangs, match=r"(?s)one/spinner.*spin_in_here.*two/other spinner"):
        world.run(1.0)


def test_whatever_waits_at_the_end_of_a_life_is_ended(world):
    ended = []

    def work() -> None:
        try:
            simulated.SimulatedEvent().wait()
        except Killed:
            ended.append("killed")
            raise

    world.process("one").spawn(work, "main")
    world.run(1.0)
    assert world.bury() == 0
    assert ended == ["killed"]


@contract
def test_an_event_is_heard_by_all_until_it_is_cleared(of):
    event, heard = of.Event(), []
    threads = three(of, lambda: heard.append(event.wait(60)))
    assert not event.wait(0.01)
    event.set()
    joined(threads)
    assert heard == [True] * 3
    assert event.wait(0)
    event.clear()
    assert not event.wait(0)


@contract
def test_a_queue_keeps_the_order_and_its_bound(of):
    jobs, got = of.Queue(2), []

    def take() -> None:
        while (job := jobs.get()) is not None:
            got.append(job)

    taker = of.Thread(target=take)
    taker.start()
    for job in range(1, 8):
        jobs.put(job)
    jobs.put(None)
    taker.join()
    assert got == list(range(1, 8))
    with pytest.raises(queue.Empty):
        jobs.get(timeout=0.01)
    jobs.put(1)
    jobs.put(2)
    with pytest.raises(queue.Full):
        jobs.put(3, timeout=0.01)
