"""SingularUpdateQueue beside ThreadPoolExecutor(1), queue.Queue, janus, culsans: one run, equal
handlers, all sides in turn, medians.

    pip install 'leaderq[bench]'        # janus and culsans; without them their rows are missing
    python benchmarks/singular.py [--rounds 7] [--requests 20000] [--capacity 1000]
        [--only post ...]

The handler does nothing, so only the handing over is measured. All rates count from the first
request until the last is *applied*, not until it is put; all bounds are exact. A first round warms
up and is not counted; every other round goes through the sides backwards. The quick sides take
``--requests`` times 25, because otherwise they would be too short to measure.

=========  ========================================================================================
post       one producer, no bound, no answer
four       the same from four threads
bounded    one producer, ``--capacity`` requests may wait
bounded4   the same from four threads
wait       one caller that waits for each outcome: rate, median and 99th percentile
wait4      the same from four threads; a plain lock beside, which is what to use when the handler
           takes microseconds
pipelined  futures of all requests first, then their outcomes
tasks      one task puts, ``--capacity`` requests may wait; the loop goes on when the queue is full
asyncio    one task that awaits each outcome
room       a thread waits in front of a full queue: microseconds from the end of the request in hand
           until it continues
aroom      the same for a task
=========  ========================================================================================

The bars: post 3,000,000/s, bounded 1,000,000/s, wait not slower (by 2 %) than ThreadPoolExecutor(1)
in the median of the rounds, room and aroom under 1 ms in the median.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import sys
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import singular_sides as sides
from figures import percentile, print_lost, print_table, save

Rounds = dict[str, list[float]]
OURS = "SingularUpdateQueue"
BATCHES, EXECUTOR = f"{OURS}, batches", "ThreadPoolExecutor(1)"
SIMPLE, SEMAPHORE, STANDARD = (
    "SimpleQueue + thread",
    "SimpleQueue + Semaphore",
    "queue.Queue + thread",
)
JANUS, CULSANS, LOCK = "janus + thread", "culsans + thread", "plain lock"
MAKERS: dict[str, sides.Maker] = {
    OURS: sides.ours,
    BATCHES: sides.ours_batches,
    SIMPLE: sides.simple_queue,
    SEMAPHORE: sides.semaphore,
    STANDARD: sides.std_queue,
    EXECUTOR: sides.executor,
    JANUS: sides.janus_queue,
    CULSANS: sides.culsans_queue,
    LOCK: sides.plain_lock,
}
QUICK = {OURS: 25, BATCHES: 25, SIMPLE: 25, LOCK: 25}
FREE = (OURS, BATCHES, SIMPLE, STANDARD, EXECUTOR, JANUS, CULSANS)
BOUND = (OURS, BATCHES, SEMAPHORE, STANDARD, JANUS, CULSANS)
ANSWERS = (OURS, SIMPLE, STANDARD, EXECUTOR, JANUS, CULSANS, LOCK)
TASKS = (OURS, JANUS, CULSANS)
RATE, MEDIAN_US, P99_US = "k/s", "median us", "p99 us"


def nothing(request: Any) -> None:
    """The handler of all sides."""


def in_threads(count: int, work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# -- one measurement: seconds for each request, or microseconds of each


def posting(maker: sides.Maker, count: int, capacity: int | None, producers: int) -> float:
    """Requests a second until all are applied."""
    side, each = maker(nothing, capacity), count // producers

    def produce() -> None:
        post = side.post
        for number in range(each):
            post(number)

    began_s = time.perf_counter()
    in_threads(producers, produce) if producers > 1 else produce()
    side.done()
    return each * producers / (time.perf_counter() - began_s)


def waiting(maker: sides.Maker, count: int, callers: int) -> list[float]:
    """Microseconds of each request."""
    side, took_us = maker(nothing, None), []

    def call() -> None:
        wait, clock, mine = side.wait, time.perf_counter, []
        assert wait is not None
        for number in range(count // callers):
            before_s = clock()
            wait(number)
            mine.append((clock() - before_s) * 1e6)
        took_us.extend(mine)

    in_threads(callers, call) if callers > 1 else call()
    side.done()
    return took_us


def pipelining(maker: sides.Maker, count: int) -> float:
    """Outcomes a second."""
    side = maker(nothing, None)
    assert side.submit is not None
    began_s = time.perf_counter()
    for future in [side.submit(number) for number in range(count)]:
        future.result()
    took_s = time.perf_counter() - began_s
    side.done()
    return count / took_s


def task_posting(maker: sides.Maker, count: int, capacity: int) -> float:
    """Requests a second until all are applied, put by one task."""
    side = maker(nothing, capacity)

    async def produce() -> None:
        apost = side.apost
        assert apost is not None
        for number in range(count):
            await apost(number)

    began_s = time.perf_counter()
    asyncio.run(produce())
    side.done()
    return count / (time.perf_counter() - began_s)


def task_waiting(maker: sides.Maker, count: int) -> list[float]:
    """Microseconds of each request of one task that awaits one outcome after the other."""
    side, took_us = maker(nothing, None), []

    async def call() -> None:
        acall, clock = side.acall, time.perf_counter
        assert acall is not None
        for number in range(count):
            before_s = clock()
            await acall(number)
            took_us.append((clock() - before_s) * 1e6)

    asyncio.run(call())
    side.done()
    return took_us


def finding_room(maker: sides.Maker, count: int, *, by_task: bool) -> list[float]:
    """Microseconds from the end of the request in hand until a producer that had found the queue
    full goes on. The handler ends when told to, and waits again in the next request.
    """
    may_end, ended_s, went_on_s = threading.Semaphore(0), [], []

    def handle(request: Any) -> None:
        may_end.acquire()
        ended_s.append(time.perf_counter())

    side = maker(handle, 2)

    def produce() -> None:
        for number in range(count + 3):  # one in hand, two that wait, and then those measured
            side.post(number)
            went_on_s.append(time.perf_counter())

    async def produce_by_task() -> None:
        assert side.apost is not None
        for number in range(count + 3):
            await side.apost(number)
            went_on_s.append(time.perf_counter())

    work = (lambda: asyncio.run(produce_by_task())) if by_task else produce
    thread = threading.Thread(target=work)
    thread.start()
    for number in range(count):
        while len(went_on_s) < 3 + number:
            time.sleep(0.000_1)
        time.sleep(0.001)  # until it sleeps
        may_end.release()
    thread.join()
    may_end.release(3)
    side.done()
    return [(on_s - end_s) * 1e6 for end_s, on_s in zip(ended_s, went_on_s[3:], strict=False)]


# -- rows


class Kind:
    """A row's sides, and one measurement of one of them: a rate, or microseconds."""

    def __init__(
        self, names: tuple[str, ...], once: Callable[[str, argparse.Namespace], Any]
    ) -> None:
        self.names = names
        self.once = once


def many(name: str, given: argparse.Namespace) -> int:
    return given.requests * QUICK.get(name, 1)


KINDS = {
    "post": Kind(FREE, lambda name, given: posting(MAKERS[name], many(name, given), None, 1)),
    "four": Kind(FREE, lambda name, given: posting(MAKERS[name], many(name, given), None, 4)),
    "bounded": Kind(
        BOUND, lambda name, given: posting(MAKERS[name], many(name, given), given.capacity, 1)
    ),
    "bounded4": Kind(
        BOUND, lambda name, given: posting(MAKERS[name], many(name, given), given.capacity, 4)
    ),
    "wait": Kind(ANSWERS, lambda name, given: waiting(MAKERS[name], given.requests, 1)),
    "wait4": Kind(ANSWERS, lambda name, given: waiting(MAKERS[name], given.requests, 4)),
    "pipelined": Kind(ANSWERS[:-1], lambda name, given: pipelining(MAKERS[name], given.requests)),
    "tasks": Kind(
        TASKS, lambda name, given: task_posting(MAKERS[name], given.requests, given.capacity)
    ),
    "asyncio": Kind(
        (*TASKS, EXECUTOR), lambda name, given: task_waiting(MAKERS[name], given.requests // 2)
    ),
    "room": Kind(
        tuple(name for name in BOUND if name != BATCHES),
        lambda name, given: finding_room(MAKERS[name], given.blocked, by_task=False),
    ),
    "aroom": Kind(
        TASKS, lambda name, given: finding_room(MAKERS[name], given.blocked, by_task=True)
    ),
}


def measure(kind: str, names: list[str], given: argparse.Namespace) -> dict[str, Rounds]:
    """For each side and column, a figure of each round."""
    found: dict[str, Rounds] = {name: {} for name in names}
    for number in range(given.rounds + 1):
        for name in names[:: -1 if number % 2 else 1]:
            gc.collect()  # the garbage of the side before must not be collected at this one's cost
            figure = KINDS[kind].once(name, given)
            columns = {RATE: figure / 1000} if isinstance(figure, float) else spread(figure)
            if kind in ("room", "aroom"):
                del columns[RATE]
            for column, value in columns.items():
                found[name].setdefault(column, []).extend([value] if number else [])
    return found


def spread(took_us: list[float]) -> dict[str, float]:
    return {
        RATE: 1e3 * len(took_us) / sum(took_us),
        MEDIAN_US: percentile(took_us, 0.5),
        P99_US: percentile(took_us, 0.99),
    }


def table(found: dict[str, Rounds]) -> dict[str, dict[str, Any]]:
    """The medians of the rounds, and of the first column the extremes."""
    rows: dict[str, dict[str, Any]] = {}
    for name, rounds in found.items():
        first = next(iter(rounds))
        rows[name] = {
            column: round(statistics.median(values), 1) for column, values in rounds.items()
        }
        rows[name] |= {"least": round(min(rounds[first]), 1), "most": round(max(rounds[first]), 1)}
    return rows


def verdicts(all_found: dict[str, dict[str, Rounds]]) -> dict[str, dict[str, Any]]:
    """The bars, by the median of the rounds."""
    rows: dict[str, dict[str, Any]] = {}

    def judge(bar: str, value: float, *, is_met: bool) -> None:
        rows[bar] = {"median": f"{value:,.2f}", "met": "yes" if is_met else "NO"}

    for kind, least in (("post", 3_000), ("bounded", 1_000)):
        if kind in all_found:
            value = statistics.median(all_found[kind][OURS][RATE])
            judge(f"{kind}: {least:,} k/s", value, is_met=value >= least)
    if "wait" in all_found:
        rounds = zip(
            all_found["wait"][OURS][MEDIAN_US], all_found["wait"][EXECUTOR][MEDIAN_US], strict=True
        )
        value = statistics.median(mine / theirs for mine, theirs in rounds)
        judge(f"wait: {MEDIAN_US} at most those of {EXECUTOR}", value, is_met=value <= 1.02)
    for kind in ("room", "aroom"):
        if kind in all_found:
            value = statistics.median(all_found[kind][OURS][MEDIAN_US])
            judge(f"{kind}: under 1,000 us", value, is_met=value < 1_000)
    return rows


def missing() -> set[str]:
    """The sides that are not installed."""
    return {f"{package} + thread" for package in ("janus", "culsans") if find_spec(package) is None}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--capacity", type=int, default=1000)
    parser.add_argument(
        "--blocked",
        type=int,
        default=200,
        help="producers that wait for room, of each side and round",
    )
    parser.add_argument("--only", nargs="+", choices=tuple(KINDS), default=tuple(KINDS))
    given = parser.parse_args()
    if min(given.rounds, given.requests, given.capacity, given.blocked) < 1:
        parser.error("numbers must be 1 or more")
    if absent := missing():
        print(
            f"not installed, so not measured: {', '.join(sorted(absent))} (pip install"
            " 'leaderq[bench]')"
        )
    found, tables = {}, {}
    for kind in given.only:
        found[kind] = measure(
            kind, [name for name in KINDS[kind].names if name not in absent], given
        )
        tables[kind] = table(found[kind])
        print_table(kind, tables[kind])
        column = MEDIAN_US if MEDIAN_US in tables[kind][OURS] else RATE
        print_lost(tables[kind], OURS, column, more_is_better=column == RATE)
    bars = verdicts(found)
    if bars:
        print_table("bars", bars)
    print(f"\n{save('singular', {'parameters': vars(given), 'tables': tables, 'bars': bars})}")
    return 0 if all(bar["met"] == "yes" for bar in bars.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
