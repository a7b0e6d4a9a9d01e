"""QueueCoordinator beside the shortest forms of the same rule; one run, sides in turn, medians.

    python benchmarks/coalescing.py [--rounds 9] [--pairs 20000] [--handovers 300] [--keys 1000000]
                                    [--only idle ...]

=========  ========================================================================================
idle       enqueue and dequeue of a key that nobody else wants, on one thread: pairs a second.
           Beside it the same rule over one Condition, polling, a lock for each key that is never
           forgotten, and a lock and a dict, where nobody waits
shared     ``run`` of a function that does nothing, beside singleflight: calls a second
handover   from the call that ends the head's work until the waiting thread runs, in microseconds
tasks      idle and handover for tasks of one loop, beside asyncio's Condition and Lock
memory     what a million keys leave when each was worked on once, in bytes a key
=========  ========================================================================================

The bars: 200,000 pairs a second for an idle key, a hand-over under 1 ms; both in the median. On a
busy machine look at the ratios ("x ours").
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

from coalescing_sides import (
    Conditioned,
    ConditionedTasks,
    LockAndDict,
    Ours,
    OurTasks,
    PlainLocks,
    Polling,
    SingleFlight,
    TaskLocks,
)
from figures import percentile, print_lost, print_table, save

from leaderq.coalescing import QueueCoordinator

Rows = dict[str, dict[str, Any]]
OURS = "QueueCoordinator"
CONDITION, POLLING = "one Condition", "polling, 10 ms"
LOCKS, LOCK_AND_DICT = "lock for each key", "lock and dict, none waits"
STRETCH = 100
RATE, MEDIAN_US, P99_US, RATIO = "k/s", "median us", "p99 us", "x ours"
WAITING: dict[str, Callable[[], Any]] = {
    OURS: Ours,
    CONDITION: Conditioned,
    POLLING: Polling,
    LOCKS: PlainLocks,
}
TASKS: dict[str, Callable[[], Any]] = {
    OURS: OurTasks,
    "asyncio.Condition": ConditionedTasks,
    "asyncio.Lock for each key": TaskLocks,
}


def in_turn(runs: dict[str, Callable[[], Any]], rounds: int) -> dict[str, list[Any]]:
    """What each side measured, round by round; every other round backwards, the first not
    counted.
    """
    taken: dict[str, list[Any]] = {name: [] for name in runs}
    names = list(runs)
    for number in range(rounds + 1):
        for name in names[:: -1 if number % 2 else 1]:
            gc.collect()
            figure = runs[name]()
            taken[name].extend([figure] if number else [])
    return taken


def rate_rows(taken: dict[str, list[float]]) -> Rows:
    ours = statistics.median(taken[OURS])
    return {
        name: {
            RATE: round(statistics.median(rates) / 1e3),
            "least": round(min(rates) / 1e3),
            "most": round(max(rates) / 1e3),
            RATIO: round(statistics.median(rates) / ours, 2),
        }
        for name, rates in taken.items()
    }


def time_rows(taken: dict[str, list[list[float]]]) -> Rows:
    medians = {
        name: [percentile(micros, 0.5) for micros in rounds] for name, rounds in taken.items()
    }
    ours = statistics.median(medians[OURS])
    return {
        name: {
            MEDIAN_US: round(statistics.median(medians[name]), 1),
            P99_US: round(statistics.median([percentile(micros, 0.99) for micros in rounds]), 1),
            RATIO: round(statistics.median(medians[name]) / ours, 2),
        }
        for name, rounds in taken.items()
    }


# -- rows


def usual_rate(work: Callable[[int], object], count: int) -> float:
    """The median rate of many short stretches of ``count``: of those that the machine interrupted
    there are fewer.
    """
    rates = []
    for _ in range(max(1, count // STRETCH)):
        began_s = time.perf_counter()
        work(STRETCH)
        rates.append(STRETCH / (time.perf_counter() - began_s))
    return statistics.median(rates)


def pairs_a_second(
    enter: Callable[[str], Any], leave: Callable[[Any], object], count: int
) -> float:
    def work(stretch: int) -> None:
        for _ in range(stretch):
            leave(enter("key"))

    return usual_rate(work, count)


def scopes_a_second(coordinator: QueueCoordinator[str], count: int) -> float:
    def work(stretch: int) -> None:
        for _ in range(stretch):
            with coordinator.hold("key"):
                pass

    return usual_rate(work, count)


def measure_idle(given: argparse.Namespace) -> Rows:
    timed: QueueCoordinator[str] = QueueCoordinator(safe_timeout_s=60)
    scoped: QueueCoordinator[str] = QueueCoordinator()
    sides = {name: make() for name, make in {**WAITING, LOCK_AND_DICT: LockAndDict}.items()}
    runs: dict[str, Callable[[], float]] = {
        name: lambda side=side: pairs_a_second(side.enter, side.leave, given.pairs)
        for name, side in sides.items()
    }
    runs[f"{OURS}, safe time-out"] = lambda: pairs_a_second(
        timed.enqueue, timed.dequeue, given.pairs
    )
    runs[f"{OURS}, with hold"] = lambda: scopes_a_second(scoped, given.pairs)
    return rate_rows(in_turn(runs, given.rounds))


def measure_shared(given: argparse.Namespace) -> Rows:
    def calls_a_second(do: Callable[[str, Callable[[], None]], object]) -> float:
        def work(stretch: int) -> None:
            for _ in range(stretch):
                do("key", lambda: None)

        return usual_rate(work, given.pairs)

    ours, flight = Ours(), SingleFlight()
    runs = {
        OURS: lambda: calls_a_second(ours.do),
        "singleflight": lambda: calls_a_second(flight.do),
    }
    return rate_rows(in_turn(runs, given.rounds))


def handovers(side: Any, count: int) -> list[float]:
    """Microseconds from each end of a head's work to the begin of the tail's. The head does nothing
    afterwards, as a thread does that has done its work: with a GIL, one that computed on would keep
    the interpreter for up to 5 ms more.
    """
    began_s = 0.0
    begun, go = threading.Semaphore(0), threading.Semaphore(0)

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


def measure_handover(given: argparse.Namespace) -> Rows:
    count = max(1, given.handovers // given.rounds)
    runs = {name: lambda make=make: handovers(make(), count) for name, make in WAITING.items()}
    return time_rows(in_turn(runs, given.rounds))


def task_pairs_a_second(make: Callable[[], Any], count: int) -> float:
    async def main() -> float:
        side, rates = make(), []
        for _ in range(max(1, count // STRETCH)):
            began_s = time.perf_counter()
            for _ in range(STRETCH):
                side.leave(await side.enter("key"))
            rates.append(STRETCH / (time.perf_counter() - began_s))
        return statistics.median(rates)

    return asyncio.run(main())


def task_handovers(make: Callable[[], Any], count: int) -> list[float]:
    async def main() -> list[float]:
        side, micros = make(), []

        async def tail() -> float:
            turn = await side.enter("key")
            began_s = time.perf_counter()
            side.leave(turn)
            return began_s

        for _ in range(count):
            turn = await side.enter("key")
            task = asyncio.create_task(tail())
            await asyncio.sleep(0)
            ended_s = time.perf_counter()
            side.leave(turn)
            micros.append((await task - ended_s) * 1e6)
        return micros

    return asyncio.run(main())


def measure_tasks(given: argparse.Namespace) -> Rows:
    count = max(1, given.handovers // given.rounds)
    pairs = in_turn(
        {
            name: lambda make=make: task_pairs_a_second(make, given.pairs)
            for name, make in TASKS.items()
        },
        given.rounds,
    )
    micros = in_turn(
        {name: lambda make=make: task_handovers(make, count) for name, make in TASKS.items()},
        given.rounds,
    )
    times = time_rows(micros)
    return {
        name: row | {MEDIAN_US: times[name][MEDIAN_US]} for name, row in rate_rows(pairs).items()
    }


def measure_memory(given: argparse.Namespace) -> Rows:
    """Keys are made as they are used, as those of a stream are: what is left is what is kept."""
    sides = {name: make() for name, make in WAITING.items() if name != POLLING}
    work = {name: (side.enter, side.leave) for name, side in sides.items()}
    rows = {}
    for name, (enter, leave) in work.items():
        gc.collect()
        tracemalloc.start()
        for number in range(given.keys):
            leave(enter(f"key-{number}"))
        gc.collect()
        held, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        rows[name] = {
            "bytes/key": round(held / given.keys, 1),
            "left KiB": held // 1024,
            "peak KiB": peak // 1024,
        }
    return rows


PARTS: dict[str, tuple[Callable[[argparse.Namespace], Rows], str]] = {
    "idle": (measure_idle, RATE),
    "shared": (measure_shared, RATE),
    "handover": (measure_handover, MEDIAN_US),
    "tasks": (measure_tasks, RATE),
    "memory": (measure_memory, "bytes/key"),
}


def bars(tables: dict[str, Rows]) -> Rows:
    rows: Rows = {}
    if "idle" in tables:
        rate = tables["idle"][OURS][RATE]
        rows["idle: 200 k/s"] = {"median": rate, "met": "yes" if rate >= 200 else "NO"}
    if "handover" in tables:
        micros = tables["handover"][OURS][MEDIAN_US]
        rows["handover: under 1,000 us"] = {
            "median": micros,
            "met": "yes" if micros < 1_000 else "NO",
        }
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--handovers", type=int, default=300, help="of each side, over all rounds")
    parser.add_argument("--pairs", type=int, default=20_000, help="of each side and round")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="+", choices=tuple(PARTS), default=tuple(PARTS))
    given = parser.parse_args()
    if min(given.rounds, given.handovers, given.pairs, given.keys) < 1:
        parser.error("numbers must be 1 or more")
    tables = {}
    for part in given.only:
        measure, column = PARTS[part]
        tables[part] = measure(given)
        print_table(part, tables[part])
        if part != "memory":
            print_lost(tables[part], OURS, column, more_is_better=column == RATE)
    held = bars(tables)
    if held:
        print_table("bars", held)
    print(f"\n{save('coalescing', {'parameters': vars(given), 'tables': tables, 'bars': held})}")
    return 0 if all(bar["met"] == "yes" for bar in held.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
