"""SingularUpdateQueue beside ThreadPoolExecutor(1), queue.Queue, janus, culsans: one run, equal handlers, medians.

    pip install 'leaderq[bench]'        # janus and culsans; without them their rows are missing, and it says so
    python benchmarks/singular.py [--rounds 7] [--requests 20000] [--capacity 1000] [--only post bounded wait ...]

The handler is a function that does nothing, so what is measured is the handing over. All rates are from the first request
until the last is *applied*, not until it is put. A first round, which warms up, is not counted. The quick sides take
``--requests`` times 25, for they would be through before a clock shows it; a rate does not depend on it.

=========  =================================================================================================================
post       one producer, no bound, no answer
four       the same from four threads
bounded    one producer, ``--capacity`` requests may wait
bounded4   the same from four threads
wait       one caller that waits for each outcome: rate, median and 99th percentile
wait4      the same from four threads; a plain lock beside, which is what to use when the handler takes microseconds
pipelined  futures of all requests first, then their outcomes
asyncio    one task that awaits each outcome: ``call`` beside ``run_in_executor``
=========  =================================================================================================================
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import singular_sides as sides
from figures import percentile, print_table, save

from leaderq.singular import SingularUpdateQueue

MORE = 25
OURS = "SingularUpdateQueue"
MAKERS: dict[str, tuple[sides.Maker, bool]] = {
    # side: (how it is made, whether it is quick)
    OURS: (sides.ours, True),
    f"{OURS}, batches": (sides.ours_batches, True),
    "SimpleQueue + thread": (sides.simple_queue, True),
    "SimpleQueue + Semaphore": (sides.semaphore, False),
    "queue.Queue + thread": (sides.std_queue, False),
    "ThreadPoolExecutor(1)": (sides.executor, False),
    "janus + thread": (sides.janus_queue, False),
    "culsans + thread": (sides.culsans_queue, False),
    "plain lock": (sides.plain_lock, True),
}
FREE = (
    OURS,
    f"{OURS}, batches",
    "SimpleQueue + thread",
    "queue.Queue + thread",
    "ThreadPoolExecutor(1)",
    "janus + thread",
    "culsans + thread",
)
BOUND = (OURS, f"{OURS}, batches", "SimpleQueue + Semaphore", "queue.Queue + thread", "janus + thread", "culsans + thread")
ANSWERS = (
    OURS,
    "SimpleQueue + thread",
    "queue.Queue + thread",
    "ThreadPoolExecutor(1)",
    "janus + thread",
    "culsans + thread",
    "plain lock",
)
KINDS: dict[str, tuple[str, ...]] = {
    "post": FREE,
    "four": FREE,
    "bounded": BOUND,
    "bounded4": BOUND,
    "wait": ANSWERS,
    "wait4": ANSWERS,
    "pipelined": ANSWERS[:-1],
    "asyncio": (OURS, "ThreadPoolExecutor(1)"),
}
BARS = {"post": 3_000_000.0, "bounded": 1_000_000.0, "wait": 31_000.0}
P99_BAR_US = 100.0


def nothing(request: Any) -> None:
    """The handler of all sides."""


def posted(side: sides.Side, count: int, producers: int) -> float:
    """Seconds until all of ``count`` requests are applied."""
    each = count // producers

    def produce() -> None:
        post = side.post
        for number in range(each):
            post(number)

    began = time.perf_counter()
    if producers == 1:
        produce()
    else:
        in_threads(producers, produce)
    side.done()
    return time.perf_counter() - began


def waited(side: sides.Side, count: int, callers: int) -> tuple[float, list[float]]:
    """Seconds for all, and microseconds for each."""
    each, took_us = count // callers, []
    assert side.wait is not None

    def call() -> None:
        wait, clock, mine = side.wait, time.perf_counter, []
        assert wait is not None
        for number in range(each):
            before = clock()
            wait(number)
            mine.append((clock() - before) * 1e6)
        took_us.extend(mine)

    began = time.perf_counter()
    if callers == 1:
        call()
    else:
        in_threads(callers, call)
    took_s = time.perf_counter() - began
    side.done()
    return took_s, took_us


def pipelined(side: sides.Side, count: int) -> float:
    """Seconds until the last of ``count`` outcomes is there."""
    submit = side.submit
    assert submit is not None
    began = time.perf_counter()
    for future in [submit(number) for number in range(count)]:
        future.result()
    took_s = time.perf_counter() - began
    side.done()
    return took_s


def awaited(name: str, count: int) -> tuple[float, list[float]]:
    """Seconds for all, and microseconds for each, of one task that awaits one outcome after the other."""
    took_us: list[float] = []

    async def use(call: Callable[[int], Any]) -> float:
        began = time.perf_counter()
        for number in range(count):
            before = time.perf_counter()
            await call(number)
            took_us.append((time.perf_counter() - before) * 1e6)
        return time.perf_counter() - began

    if name == OURS:
        with SingularUpdateQueue(nothing) as queue:
            return asyncio.run(use(queue.call)), took_us
    with ThreadPoolExecutor(1) as pool:

        def call(number: int) -> Any:
            return asyncio.get_running_loop().run_in_executor(pool, nothing, number)

        return asyncio.run(use(call)), took_us


def in_threads(count: int, work: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def once(kind: str, name: str, arguments: argparse.Namespace) -> tuple[float, list[float]]:
    """One measurement: requests a second, and microseconds for each where somebody waits."""
    maker, is_quick = MAKERS[name]
    with sides.collected():
        if kind == "asyncio":
            took_s, took_us = awaited(name, arguments.requests // 2)
            return arguments.requests // 2 / took_s, took_us
        is_bounded = kind.startswith("bounded")
        side = maker(nothing, arguments.capacity if is_bounded else None)
        if kind.startswith("wait"):
            took_s, took_us = waited(side, arguments.requests, 4 if kind.endswith("4") else 1)
            return arguments.requests / took_s, took_us
        if kind == "pipelined":
            return arguments.requests / pipelined(side, arguments.requests), []
        count = arguments.requests * (MORE if is_quick else 1)
        return count / posted(side, count, 4 if kind in ("four", "bounded4") else 1), []


def measure(kind: str, names: list[str], arguments: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """All sides in turn, round by round."""
    rates: dict[str, list[float]] = {name: [] for name in names}
    took_us: dict[str, list[list[float]]] = {name: [] for name in names}
    for number in range(arguments.rounds + 1):
        for name in names:
            rate, took = once(kind, name, arguments)
            if sys.stderr.isatty():
                print(
                    f"\r{kind}, round {number}/{arguments.rounds}: {name} {rate / 1000:,.1f} k/s".ljust(90),
                    end="",
                    file=sys.stderr,
                )
            if number:
                rates[name].append(rate)
                took_us[name].append(took)
    rows = {}
    for name in names:
        rows[name] = {
            "k/s": round(percentile(rates[name], 0.5) / 1000, 1),
            "slowest": round(min(rates[name]) / 1000, 1),
            "quickest": round(max(rates[name]) / 1000, 1),
            "ours/it": round(percentile(rates[OURS], 0.5) / percentile(rates[name], 0.5), 2),
        }
        if took_us[name][0]:
            for share, column in ((0.5, "p50 us"), (0.99, "p99 us")):
                by_round = [percentile(took, share) for took in took_us[name]]
                rows[name][column] = round(percentile(by_round, 0.5), 1)
                rows[name][f"least {column}"] = round(min(by_round), 1)
    return rows


def verdicts(tables: dict[str, dict[str, dict[str, Any]]]) -> dict[str, dict[str, Any]]:
    """The bars, by the median of the rounds and by the best of them, for a busy machine slows some."""
    found = {}
    for kind, bar in BARS.items():
        if kind in tables:
            row = tables[kind][OURS]
            found[f"{kind}, requests/s"] = _verdict(
                row["k/s"] * 1000, row["quickest"] * 1000, f">= {bar:,.0f}", lambda value, bar=bar: value >= bar
            )
    if "wait" in tables:
        row = tables["wait"][OURS]
        found["wait, p99 us"] = _verdict(
            row["p99 us"], row["least p99 us"], f"<= {P99_BAR_US:g}", lambda value: value <= P99_BAR_US
        )
    return found


def _verdict(median: float, best: float, bar: str, is_met: Callable[[float], bool]) -> dict[str, Any]:
    return {
        "median": f"{median:,.0f}",
        "best round": f"{best:,.0f}",
        "bar": bar,
        "met": "yes" if is_met(median) else "best only" if is_met(best) else "NO",
    }


def missing() -> set[str]:
    """The sides that are not installed."""
    return {f"{package} + thread" for package in ("janus", "culsans") if find_spec(package) is None}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--capacity", type=int, default=1000)
    parser.add_argument("--only", nargs="+", choices=tuple(KINDS), default=tuple(KINDS))
    arguments = parser.parse_args()
    absent = missing()
    if absent:
        print(f"not installed, so not measured: {', '.join(sorted(absent))} (pip install 'leaderq[bench]')")
    tables = {}
    for kind in arguments.only:
        tables[kind] = measure(kind, [name for name in KINDS[kind] if name not in absent], arguments)
        if sys.stderr.isatty():
            print("\r".ljust(92), end="\r", file=sys.stderr)
        print_table(kind, tables[kind])
    found = verdicts(tables)
    if found:
        print_table("bars", found)
    print("\n", save("singular", {"parameters": vars(arguments), "tables": tables, "bars": found}))


if __name__ == "__main__":
    main()
