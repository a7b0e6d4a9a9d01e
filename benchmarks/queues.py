"""leaderq's queues beside Java Curator 5.9.0 and kazoo: one server, the same values, rounds in
turn, medians.

    python benchmarks/queues.py [--only ROW ...] [--rounds 3] [--warm-up 1] [--size 100]
                                [--items 2000] [--more 20000] [--backlog 1000000]

Needs a JDK. Each name below is measured by itself (``--only``); ratios are of medians of one run.
Both sides get the same number of values, of half to one and a half times ``--size`` bytes, and the
same listener or none. The server has ZooKeeper's ordinary 1000 MB and forces its writes to disk.
Curator consumes with one thread (its default) and with 16 (its best); ours is one process with the
defaults. Within a round the sides come in any order. Curator's JIT takes some rounds: for final
figures ``--warm-up 3 --rounds 5``. Beside each row that consumes: how many values a crash of the
consumer loses.

==============  ================================================================================
put             one znode a value: ``put_many``, and ``put`` in the background
put-listener    the same with a listener on both sides
put-default     the default ``put()``, one after the other, beside bare creates
multi           100 values a znode, in the background
consume         without lock path, ``--items`` and (``consume-more``) ``--more`` values
lock            with lock path, the same (``lock-more``)
consume-multi   ``--more`` values in znodes of 100, without and with lock path
kinds           id, priority and delay queues: put in the background, and consume
latency         milliseconds from put to begin at 100 puts/s: one consumer, two, two unequal;
                also for a loop over kazoo with nothing else
fair            the same, ours, beside a consumer that is hung, slow, paused, idle or not asking
neighbour       milliseconds that an unrelated client's write takes beside our bulk work
simple          SimpleDistributedQueue: offer, poll, ``poll_many(100)``; kazoo's ``Queue``
kazoo           kazoo's ``Queue`` and ``LockingQueue`` beside ours
ensemble        put, consume and lock on an ensemble of three
backlog         microseconds an item at ``--backlog`` items, at 20,000 and at 1,000
four            one consumer beside four, each a process
==============  ================================================================================
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from figures import is_fit_for, percentile, print_table, save, verdict
from queue_sides import Curator, Ground, Kazoo, Ours, consume_bare_flow

from leaderq.testing import ZooKeeperEnsemble, ZooKeeperServer

HEAP_MB = 1000
AS_IN_PRODUCTION = (
    "-XX:TieredStopAtLevel=4",
    "-XX:-UseSerialGC",
    f"-Xms{HEAP_MB}m",
    "-XX:+AlwaysPreTouch",
)
"""All of the JIT, the collector that the JVM chooses itself, ZooKeeper's default heap, there from
the start.
"""
AHEAD = "101"
"""Values that a killed consumer of ours without a lock path takes with it: ``claim_ahead``, and one
in hand.
"""
RATE, FLOW_S = 100, 4
Job = Callable[[], float]


@dataclass
class Row:
    """One measurement: ``crash`` is what a crash of the consumer loses."""

    name: str
    items: int
    job: Job
    crash: str = ""
    seconds: list[float] = field(default_factory=list)

    @property
    def per_s(self) -> float:
        """The median rate."""
        return self.items / percentile(self.seconds, 0.5)

    def line(self) -> dict[str, Any]:
        """Thousands a second, and how far the rounds differ."""
        rates = [round(self.items / took_s / 1000, 2) for took_s in self.seconds]
        line = {
            "items": self.items,
            "k/s": round(self.per_s / 1000, 2),
            "slowest": min(rates),
            "quickest": max(rates),
        }
        return line | ({"crash loses": self.crash} if self.crash else {})


@dataclass
class Table:
    """Rows that are measured in turn. A bar: what, ours, theirs, and the least ratio of their
    rates.
    """

    title: str
    rows: list[Row]
    bars: list[tuple[str, str, str, float]] = field(default_factory=list)

    def ratios(self) -> dict[str, dict[str, Any]]:
        """The bars, and where nothing is promised, how each of ours stands beside the best of
        theirs.
        """
        rates = {row.name: row.per_s for row in self.rows}
        return {
            f"{self.title}: {what}": verdict(rates[ours] / rates[theirs], least)
            for what, ours, theirs, least in self.bars
        }


SHARES = {"p50 ms": 0.5, "p95 ms": 0.95, "p99 ms": 0.99}


def in_ms(took_s: list[float]) -> dict[str, float]:
    """The percentiles of these times, in milliseconds."""
    return {what: round(1000 * percentile(took_s, share), 1) for what, share in SHARES.items()}


class Bench:
    """What can be measured on one server, or ensemble; each method returns tables."""

    def __init__(self, stack: ExitStack, server: Any, arguments: argparse.Namespace) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.arguments = arguments
        self.size: int = arguments.size
        self.items: int = arguments.items
        self.ground = stack.enter_context(closing(Ground(server.address, folder)))
        self.ours = stack.enter_context(closing(Ours(self.ground)))
        self.curator = stack.enter_context(closing(Curator(self.ground, folder / "curator.log")))
        self.kazoo = stack.enter_context(closing(Kazoo(self.ground)))

    def put(self, *, listener: bool = False) -> Table:
        count, size = self.arguments.more, self.size
        least = 2.5 if listener else 3.0
        theirs = "Curator, background put"
        return Table(
            f"put{', with listeners' if listener else ''}, {size} B",
            [
                Row(theirs, count, partial(self.curator.put, count, size, listener=listener)),
                Row("put_many", count, partial(self.ours.put_many, count, size, listener=listener)),
                Row(
                    "background put",
                    count,
                    partial(self.ours.put, count, size, listener=listener, put_in_background=True),
                ),
            ],
            [
                ("put_many", "put_many", theirs, least),
                ("background put", "background put", theirs, least),
            ],
        )

    def put_default(self) -> Table:
        count, size = self.items, self.size
        return Table(
            f"default put, {size} B",
            [
                Row("bare create", count, partial(self.ours.create, count, size)),
                Row("put", count, partial(self.ours.put, count, size)),
                Row(
                    "Curator, foreground put",
                    count,
                    partial(self.curator.put, count, size, background=False),
                ),
            ],
            [
                ("put / bare create", "put", "bare create", 0.85),
                ("put / Curator's", "put", "Curator, foreground put", 0.0),
            ],
        )

    def multi(self) -> Table:
        count, size = self.arguments.more, self.size
        return Table(
            f"multi, {size} B",
            [
                Row(
                    "Curator, putMulti(100)",
                    count,
                    partial(self.curator.put, count, size, each=100),
                ),
                Row(
                    "put_multi(100)",
                    count,
                    partial(self.ours.put, count, size, each=100, put_in_background=True),
                ),
            ],
            [("put_multi", "put_multi(100)", "Curator, putMulti(100)", 0.0)],
        )

    def consume(
        self,
        count: int,
        *,
        locks: bool,
        bars: tuple[float, float],
        kind: str = "plain",
        each: int = 1,
    ) -> Table:
        def filled(consume: Callable[..., float], **options: Any) -> Job:
            def job() -> float:
                path = self.ground.filled(count, self.size, kind=kind, each=each)
                self.ground.settle()
                return consume(path, count, locks=locks, kind=kind, **options)

            return job

        threads = ((1, bars[0]), (16, bars[1]))
        batch = [
            Row(
                "consume_batch",
                count,
                filled(self.ours.consume, batch=True),
                "0" if locks else "200",
            )
        ]
        of = f" of {each} a znode" if each > 1 else ""
        return Table(
            f"consume {count:,}{of}, {kind}{', lock path' if locks else ''}, {self.size} B",
            [
                *(
                    Row(
                        f"Curator, {n} threads",
                        count,
                        filled(self.curator.consume, threads=n),
                        "0" if locks else str(n * each),
                    )
                    for n, _ in threads
                ),
                Row(
                    "consume",
                    count,
                    filled(self.ours.consume),
                    "0" if locks else str(max(int(AHEAD), 2 * each)),
                ),
                *(batch if kind == "plain" else []),
            ],
            [
                (f"consume / Curator, {n} threads", "consume", f"Curator, {n} threads", least)
                for n, least in threads
            ],
        )

    def kinds(self) -> list[Table]:
        tables = []
        for kind in ("id", "priority", "delay"):
            put = [
                Row(
                    "Curator, background put",
                    self.items,
                    partial(self.curator.put, self.items, self.size, kind=kind),
                ),
                Row(
                    "background put",
                    self.items,
                    partial(
                        self.ours.put, self.items, self.size, kind=kind, put_in_background=True
                    ),
                ),
            ]
            tables.append(
                Table(
                    f"put, {kind}, {self.size} B",
                    put,
                    [("background put", "background put", "Curator, background put", 0.0)],
                )
            )
            tables.append(self.consume(self.items, locks=False, bars=(0.0, 0.0), kind=kind))
        return tables

    def simple(self) -> Table:
        def polled(poll: Callable[..., float], **options: Any) -> Job:
            return lambda: poll(
                self.ground.filled_simple(self.items, self.size), self.items, **options
            )

        count, size = self.items, self.size
        return Table(
            f"simple queue, {size} B",
            [
                Row("Curator, offer", count, partial(self.curator.offer, count, size)),
                Row("offer", count, partial(self.ours.offer, count, size)),
                Row("Curator, poll", count, polled(self.curator.poll), "1"),
                Row("poll", count, polled(self.ours.poll), "1"),
                Row("poll_many(100)", count, polled(self.ours.poll, at_once=100), "100"),
            ],
            [
                ("offer", "offer", "Curator, offer", 0.0),
                ("poll", "poll", "Curator, poll", 1.0),
                ("poll_many", "poll_many(100)", "Curator, poll", 1.0),
            ],
        )

    def kazoos(self) -> Table:
        def drained(locks: bool) -> float:
            return self.ours.consume(self.ground.filled(count, size), count, locks=locks)

        count, size = self.items, self.size
        return Table(
            f"kazoo, {size} B",
            [
                Row("kazoo Queue.put", count, partial(self.kazoo.put, count, size)),
                Row("put", count, partial(self.ours.put, count, size)),
                Row(
                    "kazoo LockingQueue.put_all(100)",
                    count,
                    partial(self.kazoo.put_all, count, size),
                ),
                Row("put_many", count, partial(self.ours.put_many, count, size)),
                Row("kazoo Queue.get", count, partial(self.kazoo.get, count, size), "1"),
                Row("consume", count, partial(drained, False), AHEAD),
                Row(
                    "kazoo LockingQueue.get, consume",
                    count,
                    partial(self.kazoo.consume, count, size),
                    "0",
                ),
                Row("consume, lock path", count, partial(drained, True), "0"),
            ],
            [
                ("put", "put", "kazoo Queue.put", 0.0),
                ("put_many / put_all", "put_many", "kazoo LockingQueue.put_all(100)", 0.0),
                ("consume / get", "consume", "kazoo Queue.get", 0.0),
                (
                    "consume with lock / LockingQueue",
                    "consume, lock path",
                    "kazoo LockingQueue.get, consume",
                    0.0,
                ),
            ],
        )

    def latency(self) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
        """Flows in turn, after one of each that is not counted, and but for the first second of
        each, in which consumers learn who of them is slow. Medians of all rounds.
        """
        lines: dict[str, dict[str, Any]] = {}
        ratios: dict[str, dict[str, Any]] = {}
        settings = [
            ("one consumer", 1, False, 0.0),
            ("two consumers", 2, False, 0.0),
            ("two consumers, lock path", 2, True, 0.0),
            ("slow beside free", 2, False, 0.1),
            ("slow beside free, lock path", 2, True, 0.1),
        ]
        for name, consumers, locks, slow_s in settings:
            sides = {
                "Curator": self.curator.flow,
                "bare kazoo": partial(self.ours.flow, consume=consume_bare_flow),
                "ours": self.ours.flow,
            }
            found: dict[str, list[list[float]]] = {side: [] for side in sides}
            for number in range(1 + self.arguments.rounds):
                for side, flow in sides.items():
                    how: dict[str, Any] = {"consumers": consumers, "locks": locks, "slow_s": slow_s}
                    took_s = flow(RATE, RATE * (1 + FLOW_S), **how)[RATE:]
                    found[side] += [took_s] if number else []
            for side, flows in found.items():
                rounds = [in_ms(one) for one in flows]
                line = {what: percentile([one[what] for one in rounds], 0.5) for what in SHARES}
                most = {"max ms": round(1000 * max(map(max, flows)), 1)}
                lines[f"{name}, {side}"] = {"n": sum(map(len, flows)), **line, **most}
            ours, curator, bare = (
                lines[f"{name}, {side}"]["p99 ms"] for side in ("ours", "Curator", "bare kazoo")
            )
            for whose, theirs in (("Curator's", curator), ("a bare loop's", bare)):
                ratios[f"put to begin, {name}: p99 / {whose}"] = verdict(
                    ours / theirs, 1.25, at_most=True
                )
        return lines, ratios

    def fair(self) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
        """Milliseconds from put to begin with a free consumer beside another; ``raw``: with what
        the machine stood still.
        """
        lines: dict[str, dict[str, Any]] = {}
        ratios: dict[str, dict[str, Any]] = {}
        for beside in ("hung", "slow", "paused", "pull", "idle"):
            for rate, locks in ((rate, locks) for rate in (5, 50, 500) for locks in (False, True)):
                raw, took = self.ours.fair(rate, max(20, rate * FLOW_S), beside=beside, locks=locks)
                name = f"free beside {beside}, {rate}/s{', lock path' if locks else ''}"
                p50_ms, p99_ms = (1000 * percentile(took, share) for share in (0.5, 0.99))
                lines[name] = {
                    "n": len(took),
                    "p50 ms": round(p50_ms),
                    "p99 ms": round(p99_ms),
                    "max ms": round(1000 * max(took)),
                    "raw p99 ms": round(1000 * percentile(raw, 0.99)),
                    "raw max ms": round(1000 * max(raw)),
                }
                ratios[f"{name}: p99 ms"] = verdict(p99_ms, 200.0, at_most=True)
        return lines, ratios

    def neighbour(self) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
        lines: dict[str, dict[str, Any]] = {}
        for load in ("idle", "computing", "bulk", "command line"):
            took = self.ours.beside(load, 2 * FLOW_S, self.size)
            lines[load] = {"n": len(took), **in_ms(took)}
        idle_ms = lines["idle"]["p99 ms"]
        return lines, {
            f"a neighbour beside {load}: p99 / idle": verdict(
                lines[load]["p99 ms"] / idle_ms, 5.0, at_most=True
            )
            for load in ("bulk", "command line")
        }

    def backlog(self) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
        """The deepest once, because it takes its time."""
        deep, lines, ratios = self.arguments.backlog, {}, {}
        for mark, locks in (("", False), (", lock path", True)):
            cost = {}
            for items, rounds in (
                (1000, self.arguments.rounds),
                (20_000, self.arguments.rounds),
                (deep, 1),
            ):
                took = []
                for _ in range(rounds + (items < deep)):
                    path = self.ground.filled(items, 5)
                    took.append(self.ours.consume(path, items, locks=locks) / items * 1e6)
                cost[items] = percentile(took[-rounds:], 0.5)
                lines[f"{items:,}{mark}"] = {"us an item": round(cost[items], 1)}
            for items in (1000, 20_000):
                ratio = cost[deep] / cost[items]
                ratios[f"cost per item at {deep:,} / {items:,}{mark}"] = verdict(
                    ratio, 1.25, at_most=True
                )
        return lines, ratios

    def four(self) -> list[Table]:
        count, tables = self.arguments.more, []
        for mark, locks in (("", False), (", lock path", True)):

            def ours(consumers: int, locks: bool = locks) -> float:
                return self.ours.consume_in_processes(
                    self.ground.filled(count, 100), consumers, locks=locks
                )

            def theirs(consumers: int, locks: bool = locks) -> float:
                path = self.ground.filled(self.items, 100)
                return self.curator.consume(path, self.items, locks=locks, consumers=consumers)

            rows = [Row(f"{n} of ours", count, partial(ours, n)) for n in (1, 4)]
            rows += [Row(f"{n} of Curator's", self.items, partial(theirs, n)) for n in (1, 4)]
            bars = [("four / one", "4 of ours", "1 of ours", 1.0)]
            tables.append(Table(f"consumers{mark}, 100 B", rows, bars))
        return tables

    def measure(self, tables: list[Table]) -> None:
        """All rows of each, in any order, ``--rounds`` times after ``--warm-up`` rounds that are
        not counted.
        """
        for table in tables:
            for number in range(1 - self.arguments.warm_up, self.arguments.rounds + 1):
                for row in random.sample(table.rows, len(table.rows)):
                    self.ground.settle()
                    took_s = row.job()
                    progress(
                        f"{table.title}, round {number}: {row.name}"
                        f" {row.items / took_s / 1000:.1f} k/s"
                    )
                    if number > 0:
                        row.seconds.append(took_s)


KINDS: dict[str, Callable[[Bench], Any]] = {
    "put": lambda bench: [bench.put()],
    "put-listener": lambda bench: [bench.put(listener=True)],
    "put-default": lambda bench: [bench.put_default()],
    "multi": lambda bench: [bench.multi()],
    "consume": lambda bench: [bench.consume(bench.items, locks=False, bars=(15, 5))],
    "consume-more": lambda bench: [bench.consume(bench.arguments.more, locks=False, bars=(30, 8))],
    "lock": lambda bench: [bench.consume(bench.items, locks=True, bars=(15, 5))],
    "lock-more": lambda bench: [bench.consume(bench.arguments.more, locks=True, bars=(15, 5))],
    "consume-multi": lambda bench: [
        bench.consume(bench.arguments.more, locks=locks, bars=(0, 0), each=100)
        for locks in (False, True)
    ],
    "kinds": Bench.kinds,
    "latency": Bench.latency,
    "fair": Bench.fair,
    "neighbour": Bench.neighbour,
    "simple": lambda bench: [bench.simple()],
    "kazoo": lambda bench: [bench.kazoos()],
    "ensemble": lambda bench: [
        bench.put(),
        bench.put_default(),
        *(bench.consume(bench.items, locks=locks, bars=(0, 0)) for locks in (False, True)),
    ],
    "backlog": Bench.backlog,
    "four": Bench.four,
}


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:<110}", end="", file=sys.stderr, flush=True)


def run(name: str, bench: Bench) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """Measure, print and return the tables of one name, and their ratios."""
    found = KINDS[name](bench)
    if isinstance(found, tuple):
        tables, ratios = {name: found[0]}, found[1]
    else:
        bench.measure(found)
        tables = {table.title: {row.name: row.line() for row in table.rows} for table in found}
        ratios = {what: value for table in found for what, value in table.ratios().items()}
    progress("")
    for title, lines in tables.items():
        print_table(title, lines)
    sys.stdout.flush()
    if name == "ensemble":
        return {f"ensemble: {title}": lines for title, lines in tables.items()}, {
            f"ensemble: {what}": (
                ratio | {"bar": "none", "met": "we lose" if ratio["ratio"] < 1 else ""}
            )
            for what, ratio in ratios.items()
        }
    return tables, ratios


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--warm-up", type=int, default=1, help="rounds of each table that are not counted"
    )
    parser.add_argument("--size", type=int, default=100, help="bytes of a value, on average")
    parser.add_argument("--items", type=int, default=2000)
    parser.add_argument("--more", type=int, default=20_000)
    parser.add_argument("--backlog", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="+", choices=list(KINDS), default=list(KINDS))
    arguments = parser.parse_args()
    if not is_fit_for("queues.py", "javac"):
        return
    tables: dict[str, Any] = {}
    bars: dict[str, dict[str, Any]] = {}
    servers: list[tuple[list[str], Callable[[], Any]]] = [
        (
            [name for name in arguments.only if name != "ensemble"],
            lambda: ZooKeeperServer(heap_mb=HEAP_MB, jvm_options=AS_IN_PRODUCTION),
        ),
        ([name for name in arguments.only if name == "ensemble"], ZooKeeperEnsemble),
    ]
    for names, server in servers:
        with ExitStack() as stack:
            bench = Bench(stack, stack.enter_context(server()), arguments) if names else None
            for name in names:
                assert bench is not None
                found, ratios = run(name, bench)
                tables |= found
                bars |= ratios
    print_table("ratios of medians", bars)
    if lost := {what: ratio for what, ratio in bars.items() if ratio["met"] in ("NO", "we lose")}:
        print_table("where we lose, or miss a bar", lost)
    print(
        "saved:", save("queues", {"arguments": vars(arguments), "tables": tables, "ratios": bars})
    )


if __name__ == "__main__":
    main()
