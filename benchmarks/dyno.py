"""leaderq.dyno beside Netflix Dyno-queues 2.0.22 on Redis, and bare ZooKeeper multis.

    python benchmarks/dyno.py [--only ROW ...] [--rounds 3] [--warm-up 1] [--size 100]
                              [--single 1000] [--many 20000] [--deep 200000] [--fsync always]

Needs a JDK, Maven (it fetches Dyno-queues when first run) and ``redis-server``; without one of them
it says so, and ends. Both servers force every answered write to the disk: Redis with ``appendfsync
always``, ZooKeeper with its ordinary settings and a heap of 512 MB.
``--fsync everysec`` shows Redis as it is usually run, which may lose a second of messages. One
shard, payloads of ``--size`` bytes, ids made beforehand. V1 has a pooled plain Jedis, V2 a
``JedisPool``; the producer and each consumer have connections of their own. The sides run in turn,
after ``--warm-up`` rounds for the JITs; ratios are of medians of one run.

==========  ====================================================================================
push        1 (one after the other), 100 and 1,000 messages a call
drain       pop and acknowledge: the same
wake        milliseconds from a push until the pop that waits for it returns
order       pushed one by one with random priorities, popped one by one
beside      milliseconds from push to acknowledgement at 50 messages/s, beside a consumer that
            takes 100 ms for each, and beside one that hangs with 10 messages (leases of 2 s)
deep        microseconds a message to pop and acknowledge with 1,000 and with ``--deep`` waiting
==========  ====================================================================================

"Bare multis" write the same znodes, as many messages at a time, without choosing, leases, counters
and idempotence: what ZooKeeper itself can do. Their wake-up is a watch.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Any

from dyno_sides import Dyno, Jvm, Leaderq, Multis, redis
from figures import is_fit_for, out_of_order, percentile, print_table, save, verdict

from leaderq.testing import ZooKeeperServer

HEAP_MB = 512
AS_IN_PRODUCTION = (
    "-XX:TieredStopAtLevel=4",
    "-XX:-UseSerialGC",
    f"-Xms{HEAP_MB}m",
    "-XX:+AlwaysPreTouch",
)
PAUSE_S = 0.15
RATE, FLOW, TAKES, LEASE_S, SLOW_S = 50, 200, 10, 2.0, 0.1
PRIORITIES = random.Random(1).choices(range(100), k=200)
KNOWN = {"push": (2.0, 78.0), "drain": (1.0, 42.0)}
"""Thousands a second: V1, and V2 by 100, as they were measured once (``docs/design/facts.md``)."""
Rows = dict[str, dict[str, Any]]


class Bench:
    """The sides, and what is measured of them; each method returns rows and ratios."""

    def __init__(self, stack: ExitStack, arguments: argparse.Namespace) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.arguments = arguments
        jvm = stack.enter_context(
            closing(Jvm(stack.enter_context(redis(folder, arguments.fsync)), folder / "dyno.log"))
        )
        server = stack.enter_context(ZooKeeperServer(heap_mb=HEAP_MB, jvm_options=AS_IN_PRODUCTION))
        self.v1, self.v2 = Dyno(jvm, "v1"), Dyno(jvm, "v2")
        self.ours = stack.enter_context(closing(Leaderq(server.address)))
        self.bare = stack.enter_context(closing(Multis(server.address)))

    def rates(self, what: str) -> tuple[Rows, Rows]:
        """``push`` or ``drain``."""
        single, many, size = self.arguments.single, self.arguments.many, self.arguments.size
        jobs: dict[str, tuple[int, Callable[[], float]]] = {}
        for each, count in ((1, single), (100, many), (1000, many)):
            for side in (self.v1, self.v2, self.ours, self.bare):
                if side is self.v1 and each > 1:
                    items = single if each == 100 else 0  # it sends its commands one by one anyway
                else:
                    items = 0 if side is self.bare and each == 1000 else count  # over 128 KB
                if items:
                    jobs[f"{side.name}, {each} a call"] = (
                        items,
                        partial(getattr(side, what), items, each, size),
                    )
        rows = measured(jobs, self.arguments)
        rate = {name: row["k/s"] for name, row in rows.items()}
        known_v1, known_v2 = KNOWN[what]
        ours = rate["leaderq, 100 a call"]
        return rows, {
            f"{what}, 1 a call: leaderq / V1": verdict(
                rate["leaderq, 1 a call"] / rate["Dyno V1, 1 a call"], 0
            ),
            f"{what}, 1 a call: leaderq / V2": verdict(
                rate["leaderq, 1 a call"] / rate["Dyno V2, 1 a call"], 0
            ),
            f"{what}, 1 a call: leaderq / bare": verdict(
                rate["leaderq, 1 a call"] / rate["bare multis, 1 a call"], 0
            ),
            f"{what} by 100: leaderq / V1": verdict(ours / rate["Dyno V1, 100 a call"], 10),
            f"{what} by 100: leaderq / V2": verdict(ours / rate["Dyno V2, 100 a call"], 0.3),
            f"{what} by 1000: leaderq / V2": verdict(
                rate["leaderq, 1000 a call"] / rate["Dyno V2, 1000 a call"], 0.3
            ),
            f"{what} by 100: leaderq / bare": verdict(ours / rate["bare multis, 100 a call"], 0),
            f"{what} by 100: leaderq / V1 as known": verdict(ours / known_v1, 10),
            f"{what} by 100: leaderq / V2 as known": verdict(ours / known_v2, 0.3),
        }

    def wake(self) -> tuple[Rows, Rows]:
        counts = ((self.v1, 10), (self.v2, 100), (self.ours, 200), (self.bare, 200))
        rows = {side.name: in_ms(side.wake(count + 5, PAUSE_S)[5:]) for side, count in counts}
        ours = rows["leaderq"]
        return rows, {
            "wake-up p50: V1 / leaderq": verdict(rows["Dyno V1"]["p50"] / ours["p50"], 10),
            "wake-up p50: V2 / leaderq": verdict(rows["Dyno V2"]["p50"] / ours["p50"], 0),
            "wake-up p50, ms": verdict(ours["p50"], 6, at_most=True),
            "wake-up p99, ms": verdict(ours["p99"], 50, at_most=True),
        }

    def order(self) -> tuple[Rows, Rows]:
        rows: Rows = {}
        for side in (self.v1, self.v2, self.ours):
            numbers = side.order(PRIORITIES)
            wrong = out_of_order([PRIORITIES[number] for number in numbers])
            rows[side.name] = {
                "wrong pairs": round(wrong, 4),
                "all there": sorted(numbers) == list(range(len(numbers))),
            }
        return rows, {
            "order: pairs in the wrong order": verdict(
                rows["leaderq"]["wrong pairs"], 0.0001, at_most=True
            )
        }

    def beside(self) -> tuple[Rows, Rows]:
        rows: Rows = {}
        for what, slow_s in (("slow", SLOW_S), ("hung", 0.0)):
            for side in (self.v1, self.v2, self.ours):
                rows[f"{side.name}, {what}"] = in_ms(
                    side.beside(RATE, FLOW, TAKES, slow_s, LEASE_S)
                )
        hung_s = rows["leaderq, hung"]["max"] / 1000
        return rows, {
            "beside a slow one, p50: V2 / leaderq": verdict(
                rows["Dyno V2, slow"]["p50"] / rows["leaderq, slow"]["p50"], 0
            ),
            "beside a hung one, max: V2 / leaderq": verdict(
                rows["Dyno V2, hung"]["max"] / rows["leaderq, hung"]["max"], 0
            ),
            "beside a hung one, s until all is done": verdict(hung_s, LEASE_S + 2, at_most=True),
        }

    def deep(self) -> tuple[Rows, Rows]:
        count = 2000
        rows: Rows = {}
        for waiting in (1000, self.arguments.deep):
            for side in (self.v1, self.v2, self.ours):
                items = count // 10 if side is self.v1 else count
                found = [
                    side.deep(waiting, items, self.arguments.size)
                    for _ in range(self.arguments.rounds)
                ]
                each_s = percentile([took_s / (items - 1) for _, took_s in found], 0.5)
                rows[f"{side.name}, {waiting:,}"] = {
                    "us each": round(each_s * 1e6, 1),
                    "first pop ms": round(
                        percentile([first_s for first_s, _ in found], 0.5) * 1000, 1
                    ),
                }
        most = f"{self.arguments.deep:,}"
        return rows, {
            f"{most} / 1,000 waiting: {name}": verdict(
                rows[f"{name}, {most}"]["us each"] / rows[f"{name}, 1,000"]["us each"],
                bar,
                at_most=True,
            )
            for name, bar in (("leaderq", 1.5), ("Dyno V2", 1.5))
        }


def measured(
    jobs: dict[str, tuple[int, Callable[[], float]]], arguments: argparse.Namespace
) -> Rows:
    """Thousands a second, and how far the rounds differ; the sides of a round in any order."""
    took_s: dict[str, list[float]] = {name: [] for name in jobs}
    for number in range(arguments.warm_up + arguments.rounds):
        for name in random.sample(list(jobs), len(jobs)):
            seconds = jobs[name][1]()
            if number >= arguments.warm_up:
                took_s[name].append(seconds)
    rows: Rows = {}
    for name, (items, _) in jobs.items():
        rates = [round(items / seconds / 1000, 2) for seconds in took_s[name]]
        rows[name] = {
            "k/s": percentile(rates, 0.5),
            "slowest": min(rates),
            "quickest": max(rates),
            "items": items,
        }
    return rows


def in_ms(seconds: Sequence[float]) -> dict[str, Any]:
    """Percentiles, in milliseconds."""
    times = [one * 1000 for one in seconds]
    shares = {"p50": 0.5, "p99": 0.99, "max": 1.0}
    return {name: round(percentile(times, share), 2) for name, share in shares.items()} | {
        "n": len(times)
    }


ROWS: dict[str, Callable[[Bench], tuple[Rows, Rows]]] = {
    "push": lambda bench: bench.rates("push"),
    "drain": lambda bench: bench.rates("drain"),
    "wake": Bench.wake,
    "order": Bench.order,
    "beside": Bench.beside,
    "deep": Bench.deep,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up", type=int, default=1, help="rounds that are not counted")
    parser.add_argument("--size", type=int, default=100, help="bytes of a payload")
    parser.add_argument("--single", type=int, default=1000, help="messages one by one")
    parser.add_argument("--many", type=int, default=20_000, help="messages in batches")
    parser.add_argument("--deep", type=int, default=200_000, help="messages waiting")
    parser.add_argument(
        "--fsync", choices=["always", "everysec", "no"], default="always", help="Redis' appendfsync"
    )
    parser.add_argument("--only", nargs="+", choices=list(ROWS), default=list(ROWS))
    arguments = parser.parse_args()
    if not is_fit_for("dyno.py", "redis-server", "mvn", "javac"):
        return
    tables: dict[str, Rows] = {}
    bars: Rows = {}
    load = os.getloadavg()
    with ExitStack() as stack:
        bench = Bench(stack, arguments)
        for name in arguments.only:
            tables[name], ratios = ROWS[name](bench)
            print_table(name, tables[name])
            bars |= ratios
    print_table("ratios and bars", bars)
    if lost := {what: ratio for what, ratio in bars.items() if ratio["met"] in ("NO", "we lose")}:
        print_table("where we lose, or miss a bar", lost)
    print(f"load before and after: {load[0]:.1f}, {os.getloadavg()[0]:.1f}")
    figures = {"arguments": vars(arguments), "load": load, "tables": tables, "ratios": bars}
    print("saved:", save("dyno", figures))


if __name__ == "__main__":
    main()
