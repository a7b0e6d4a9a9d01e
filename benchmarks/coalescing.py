"""QueueCoordinator: the hand-over from head to tail, the uncontended way, and what a million idle keys leave; one run, sides in turn.

    python benchmarks/coalescing.py [--rounds 7] [--handovers 300] [--pairs 20000] [--keys 1000000] [--only handover ...]

=============  =============================================================================================================
handover       from the call that ends the head's work until the waiting thread runs, in microseconds: median and 99th percentile.
               Beside it a coordinator that polls every 10 ms, as the one of 2016 did, and a plain lock for each key, which
               lets everybody wait
uncontended    enqueue and dequeue of one key on one thread, pairs a second: the best of many short runs and the median. Beside
               it the same two, and a dictionary of locks that grows for ever
idle keys      memory a million keys leave when each was worked on once, in bytes a key
=============  =============================================================================================================

The bars: a hand-over under 1 ms in the median, 500,000 pairs a second.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

from figures import percentile, print_table, save

from leaderq.coalescing import AsyncQueueCoordinator, KeepIdle, QueueCoordinator

OURS = "QueueCoordinator"
POLLING = "polling, 10 ms"
PLAIN = "lock for each key"


class Ours:
    """The coordinator, with tokens."""

    def __init__(self) -> None:
        self._coordinator: QueueCoordinator[Any] = QueueCoordinator()
        self.enter = self._coordinator.enqueue
        self.leave = self._coordinator.dequeue

    def is_awaited(self, key: object) -> bool:
        return self._coordinator.stats().waiting == 1


class Polling:
    """One runs, one waits, by looking every 10 ms whether its turn has come; keys are never forgotten, threads are the owners."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lines: dict[Any, list[int]] = {}

    def enter(self, key: Any) -> Any:
        me = threading.get_ident()
        with self._lock:
            line = self._lines.setdefault(key, [])
            if len(line) == 2:
                return None
            line.append(me)
        while line[0] != me:
            time.sleep(0.01)
        return key

    def leave(self, key: Any) -> None:
        with self._lock:
            self._lines[key].pop(0)

    def is_awaited(self, key: Any) -> bool:
        return len(self._lines[key]) == 2


class PlainLocks:
    """A lock for each key: all wait, none is declined, none is forgotten."""

    def __init__(self) -> None:
        self._locks: dict[Any, threading.Lock] = {}
        self._waiting = 0

    def enter(self, key: Any) -> Any:
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks.setdefault(key, threading.Lock())
        if not lock.acquire(blocking=False):
            self._waiting += 1
            lock.acquire()
            self._waiting -= 1
        return lock

    def leave(self, lock: Any) -> None:
        lock.release()

    def is_awaited(self, key: Any) -> bool:
        return self._waiting == 1


SIDES: dict[str, Callable[[], Any]] = {OURS: Ours, POLLING: Polling, PLAIN: PlainLocks}


def handovers(side: Any, count: int) -> list[float]:
    """Microseconds from each end of a head's work to the begin of the tail's. The head does nothing afterwards, as a thread does that
    has done its work: with a GIL, one that computed on would keep the interpreter for up to 5 ms more."""
    began_s = 0.0
    begun = threading.Semaphore(0)
    go = threading.Semaphore(0)

    def tail() -> None:
        nonlocal began_s
        for _ in range(count):
            go.acquire()
            turn = side.enter("key")
            began_s = time.perf_counter()
            side.leave(turn)
            begun.release()

    thread = threading.Thread(target=tail)
    thread.start()
    micros = []
    for _ in range(count):
        turn = side.enter("key")
        go.release()
        while not side.is_awaited("key"):
            time.sleep(0.000_05)
        time.sleep(0.001)  # until it sleeps; for the polling side, at no fixed point of its 10 ms
        ended_s = time.perf_counter()
        side.leave(turn)
        begun.acquire()
        micros.append((began_s - ended_s) * 1e6)
    thread.join()
    return micros


async def handovers_of_tasks(count: int) -> list[float]:
    """The same between two tasks of one loop."""
    coordinator: AsyncQueueCoordinator[str] = AsyncQueueCoordinator()
    micros = []

    async def tail() -> float:
        token = await coordinator.enqueue("key")
        began_s = time.perf_counter()
        coordinator.dequeue(token)
        return began_s

    for _ in range(count):
        token = await coordinator.enqueue("key")
        task = asyncio.create_task(tail())
        await asyncio.sleep(0)
        ended_s = time.perf_counter()
        coordinator.dequeue(token)
        micros.append((await task - ended_s) * 1e6)
    return micros


def measure_handover(rounds: int, count: int) -> dict[str, dict[str, Any]]:
    taken: dict[str, list[float]] = {name: [] for name in SIDES}
    tasks = f"{OURS}, tasks"
    taken[tasks] = []
    for _ in range(rounds):
        for name, make in SIDES.items():
            taken[name] += handovers(make(), max(1, count // rounds))
        taken[tasks] += asyncio.run(handovers_of_tasks(max(1, count // rounds)))
    ours = percentile(taken[OURS], 0.5)
    return {
        name: {
            "n": len(micros),
            "median us": round(percentile(micros, 0.5), 1),
            "p99 us": round(percentile(micros, 0.99), 1),
            "x ours": round(percentile(micros, 0.5) / ours, 1),
        }
        for name, micros in taken.items()
    }


def pairs_a_second(enter: Callable[[str], Any], leave: Callable[[Any], object], count: int) -> float:
    began_s = time.perf_counter()
    for _ in range(count):
        leave(enter("key"))
    return count / (time.perf_counter() - began_s)


def scopes_a_second(coordinator: QueueCoordinator[str], count: int) -> float:
    began_s = time.perf_counter()
    for _ in range(count):
        with coordinator.hold("key"):
            pass
    return count / (time.perf_counter() - began_s)


def measure_uncontended(rounds: int, count: int) -> dict[str, dict[str, Any]]:
    """Short runs, many of them: the best says what the code costs, the median what the machine was doing besides."""
    kept: QueueCoordinator[str] = QueueCoordinator(idle=KeepIdle(cap=64))
    timed: QueueCoordinator[str] = QueueCoordinator(safe_timeout_s=60)
    scoped: QueueCoordinator[str] = QueueCoordinator()
    sides = {name: make() for name, make in SIDES.items()}
    runs: dict[str, Callable[[int], float]] = {
        name: lambda n, side=side: pairs_a_second(side.enter, side.leave, n) for name, side in sides.items()
    }
    runs[f"{OURS}, idle kept"] = lambda n: pairs_a_second(kept.enqueue, kept.dequeue, n)
    runs[f"{OURS}, safe time-out"] = lambda n: pairs_a_second(timed.enqueue, timed.dequeue, n)
    runs[f"{OURS}, with hold"] = lambda n: scopes_a_second(scoped, n)
    short = 2_000
    taken: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(max(1, rounds * count // short)):
        for name, run in runs.items():
            taken[name].append(run(short))
    ours = max(taken[OURS])
    return {
        name: {
            "best k/s": round(max(rates) / 1e3),
            "median k/s": round(statistics.median(rates) / 1e3),
            "x ours": round(max(rates) / ours, 2),
        }
        for name, rates in taken.items()
    }


def measure_idle_keys(count: int) -> dict[str, dict[str, Any]]:
    """Keys are made as they are used, as those of a stream are, so what is left is what the coordinator keeps."""
    coordinators = {name: make() for name, make in SIDES.items()}
    kept = QueueCoordinator[str](idle=KeepIdle(cap=10_000))
    work = {name: (side.enter, side.leave) for name, side in coordinators.items()}
    work[f"{OURS}, 10,000 idle kept"] = (kept.enqueue, kept.dequeue)
    rows = {}
    for name, (enter, leave) in work.items():
        gc.collect()
        tracemalloc.start()
        for number in range(count):
            leave(enter(f"key-{number}"))
        gc.collect()
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        rows[name] = {
            "keys": count,
            "left KiB": round(held / 1024),
            "bytes/key": round(held / count, 1),
            "peak KiB": peak // 1024,
        }
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--handovers", type=int, default=300, help="of each side, over all rounds")
    parser.add_argument("--pairs", type=int, default=20_000, help="of each side and round")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="+", choices=["handover", "uncontended", "idle"])
    given = parser.parse_args()
    if given.rounds < 1 or given.handovers < 1 or given.pairs < 1 or given.keys < 1:
        parser.error("numbers must be 1 or more")
    parts: dict[str, tuple[str, Callable[[], dict[str, dict[str, Any]]]]] = {
        "handover": ("hand-over from head to tail", lambda: measure_handover(given.rounds, given.handovers)),
        "uncontended": ("uncontended, one thread", lambda: measure_uncontended(given.rounds, given.pairs)),
        "idle": ("idle keys", lambda: measure_idle_keys(given.keys)),
    }
    figures: dict[str, Any] = {"parameters": vars(given)}
    for part, (title, measure) in parts.items():
        if given.only is None or part in given.only:
            figures[part] = measure()
            print_table(title, figures[part])
    figures["held"] = held = {
        "hand-over under 1 ms": "handover" not in figures or figures["handover"][OURS]["median us"] < 1_000,
        "500 k/s uncontended": "uncontended" not in figures or figures["uncontended"][OURS]["best k/s"] >= 500,
    }
    print(f"\n{save('coalescing', figures)}")
    for bar, is_held in held.items():
        if not is_held:
            print(f"not held: {bar}", file=sys.stderr)
    return 0 if all(held.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
