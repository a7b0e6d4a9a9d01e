"""leaderq's queues beside Java Curator 5.9.0: one run, one server, equal payloads, rounds in turn, medians.

    python benchmarks/queues.py [--rounds 5] [--warm-up 4] [--sizes 5 100 1000] [--items 2000] [--backlog 1000000]
                                [--only put consume ...]

Needs a JDK. The first ``--warm-up`` rounds of each table are not counted: it takes that long until the JIT of Curator and that of the
server have settled (the rates of either side double meanwhile). Rows are thousands of items a second. Curator puts in the background,
and consumes with one thread (its default) and with 16 (its best); ours is one process with the defaults. Curator's rates of consuming
fall with the backlog, for it lists all items again and again, so it is given ``--items``, and ours, whose rate must not depend on it, ten
times as many; both sides put ten times as many. Within a round the rows come in any order, each after a file of 600 MB was written
and deleted (see ``queue_sides.Ground.settle``): else one side pays for the memory that the other has used up.

=========  ===========================================================================================================
put        one znode an item: ``put_many``, and ``put`` in the background, beside Curator's ``put`` in the background
multi      100 items a znode, in the background, on both sides
consume    without lock path; *batch* is ``consume_batch``
lock       with lock path
simple     SimpleDistributedQueue: offer, poll, one after the other; *many* is ``poll_many(100)``
backlog    microseconds an item, start to end, of draining ``--backlog`` items, beside 20,000 and 1,000
four       one process that consumes beside four, with and without lock path
=========  ===========================================================================================================
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from figures import percentile, print_table, save
from queue_sides import Curator, Ground, Ours

from leaderq.testing import ZooKeeperServer

MORE = 10
"""How many times as many items the quick measurements take."""
SMALL, MIDDLE = 1_000, 20_000
BARS: dict[str, tuple[str, str, str, float]] = {
    # what: (ours, theirs, ...) as names of rows; the ratio of their rates must be at least the last
    "put_many / background put": ("put", "put_many", "Curator, background put", 3.0),
    "background put / background put": ("put", "put, background", "Curator, background put", 3.0),
    "put_multi / putMulti": ("multi", "put_multi(100)", "Curator, putMulti(100)", 1.0),
    "consume / one thread": ("consume", "consume", "Curator, 1 thread", 30.0),
    "consume / 16 threads": ("consume", "consume", "Curator, 16 threads", 8.0),
    "consume with lock / one thread": ("lock", "lock", "Curator, lock, 1 thread", 15.0),
    "consume with lock / 16 threads": ("lock", "lock", "Curator, lock, 16 threads", 5.0),
    "simple poll / poll": ("simple", "poll", "Curator, poll", 1.0),
    "simple poll_many / poll": ("simple", "poll_many", "Curator, poll", 1.0),
}


@dataclass
class Figures:
    """Seconds per round by row, and the number of items that the row took."""

    items: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, list[float]] = field(default_factory=dict)

    def add(self, row: str, items: int, took_s: float) -> None:
        """One round."""
        self.items[row] = items
        self.seconds.setdefault(row, []).append(took_s)

    def per_s(self, row: str) -> float:
        """The median rate."""
        return self.items[row] / percentile(self.seconds[row], 0.5)

    def table(self) -> dict[str, dict[str, Any]]:
        """Thousands a second, and how far the rounds differ."""
        return {
            row: {
                "items": items,
                "k/s": round(self.per_s(row) / 1000, 2),
                "slowest": round(items / max(self.seconds[row]) / 1000, 2),
                "quickest": round(items / min(self.seconds[row]) / 1000, 2),
            }
            for row, items in self.items.items()
        }


Job = tuple[str, int, Callable[[], float]]


def jobs(kind: str, ground: Ground, ours: Ours, curator: Curator, items: int, size: int) -> list[Job]:
    """What one round of a kind measures: name of the row, items, and the measurement."""
    more = items * MORE

    def drained(how: Callable[..., float], count: int, **options: Any) -> float:
        return how(ground.filled(count, size), count, **options)

    def polled(how: Callable[[str, int], float], count: int) -> float:
        return how(ground.filled_simple(count, size), count)

    if kind == "put":
        return [
            ("Curator, background put", more, partial(curator.put_background, more, size)),
            ("put, background", more, partial(ours.put_background, more, size)),
            ("put_many", more, partial(ours.put_many, more, size)),
        ]
    if kind == "multi":
        return [
            ("Curator, putMulti(100)", more * MORE, partial(curator.put_multi, more * MORE, size)),
            ("put_multi(100)", more * MORE, partial(ours.put_multi, more * MORE, size)),
        ]
    if kind in ("consume", "lock"):
        locks = kind == "lock"
        mark = ", lock" if locks else ""
        return [
            (f"Curator{mark}, 1 thread", items, partial(drained, curator.consume, items, locks=locks, threads=1)),
            (f"Curator{mark}, 16 threads", items, partial(drained, curator.consume, items, locks=locks, threads=16)),
            (kind, more, partial(drained, ours.consume, more, locks=locks)),
            (f"{kind}, batch", more, partial(drained, ours.consume, more, locks=locks, batch=True)),
        ]
    return [
        ("Curator, offer", items, partial(curator.offer, items, size)),
        ("offer", items, partial(ours.offer, items, size)),
        ("Curator, poll", items, partial(polled, curator.poll, items)),
        ("poll", items, partial(polled, ours.poll, items)),
        ("poll_many", more, partial(polled, ours.poll_many, more)),
    ]


def measure(title: str, rounds: int, warm_up: int, work: Sequence[Job], settle: Callable[[], None]) -> Figures:
    """All jobs, in any order, ``rounds`` times after ``warm_up`` rounds that are not counted; before each of them ``settle()``."""
    figures = Figures({row: items for row, items, _ in work})
    for number in range(1 - warm_up, rounds + 1):
        for row, items, job in random.sample(work, len(work)):
            settle()
            took_s = job()
            progress(f"{title}, round {number}/{rounds}: {row} {items / took_s / 1000:.1f} k/s")
            if number > 0:
                figures.add(row, items, took_s)
    return figures


def progress(text: str) -> None:
    if sys.stderr.isatty():
        print(f"\r{text:<90}", end="", file=sys.stderr, flush=True)


def ratios(figures: Figures, size: int) -> dict[str, dict[str, Any]]:
    """The ratios of this size, with their bars."""
    found = {}
    for name, (_, ours, theirs, bar) in BARS.items():
        if ours in figures.items and theirs in figures.items:
            found[f"{size} B: {name}"] = verdict(figures.per_s(ours) / figures.per_s(theirs), bar, at_least=True)
    return found


def verdict(value: float, bar: float, *, at_least: bool) -> dict[str, Any]:
    """A ratio beside what it has to be."""
    is_met = value >= bar if at_least else value <= bar
    return {"ratio": round(value, 2), "bar": f"{'>=' if at_least else '<='} {bar:g}", "met": "yes" if is_met else "NO"}


def backlog(ground: Ground, ours: Ours, count: int, rounds: int) -> tuple[Figures, dict[str, dict[str, Any]]]:
    """Draining so many: the deepest once, for it takes its time, the others a round at a time."""

    def drained(items: int, locks: bool) -> float:
        return ours.consume(ground.filled(items, 5), items, locks=locks)

    figures, found = Figures(), {}
    for mark, locks in (("", False), (", lock", True)):
        rows = {items: f"drain {items:,}{mark}" for items in (SMALL, MIDDLE, count)}
        drained(MIDDLE, locks)
        for number in range(1, rounds + 1):
            for items in (SMALL, MIDDLE):
                progress(f"backlog, round {number}/{rounds}: {rows[items]}")
                figures.add(rows[items], items, drained(items, locks))
        progress(f"backlog: {rows[count]}")
        figures.add(rows[count], count, drained(count, locks))
        for items in (SMALL, MIDDLE):
            ratio = figures.per_s(rows[items]) / figures.per_s(rows[count])
            found[f"cost per item at {count:,} / {items:,}{mark}"] = verdict(ratio, 1.25, at_least=False)
    return figures, found


def four(
    ground: Ground, ours: Ours, curator: Curator, items: int, rounds: int, warm_up: int
) -> tuple[Figures, dict[str, dict[str, Any]]]:
    """One consumer beside four, 100 B."""
    work: list[Job] = []
    more = items * MORE * 2  # or four would hardly have begun when all is done
    for mark, locks in (("", False), (", lock", True)):
        for count in (1, 4):

            def together(count: int = count, locks: bool = locks) -> float:
                return ours.consume_in_processes(ground.filled(more, 100), count, locks=locks)

            def theirs(count: int = count, locks: bool = locks) -> float:
                return curator.consume(ground.filled(items, 100), items, locks=locks, threads=1, consumers=count)

            work += [(f"{count} of ours{mark}", more, together), (f"{count} of Curator's{mark}", items, theirs)]
    figures = measure("four", rounds, warm_up, work, ground.settle)
    found = {}
    for mark in ("", ", lock"):
        ratio = figures.per_s(f"4 of ours{mark}") / figures.per_s(f"1 of ours{mark}")
        found[f"four consumers / one{mark}"] = verdict(ratio, 1.0, at_least=True)
    return figures, found


HEAP_MB = 4096
AS_IN_PRODUCTION = ("-XX:TieredStopAtLevel=4", "-XX:-UseSerialGC", f"-Xms{HEAP_MB}m", "-XX:+AlwaysPreTouch")
"""All of the JIT, the collector that the JVM chooses itself, writes forced to disk, room for a million znodes, there from the start."""
KINDS = ("put", "multi", "consume", "lock", "simple", "backlog", "four")


def run(arguments: argparse.Namespace, stack: ExitStack) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    server = stack.enter_context(ZooKeeperServer(heap_mb=HEAP_MB, jvm_options=AS_IN_PRODUCTION))
    ground = stack.enter_context(closing(Ground(server.address, folder)))
    ours = stack.enter_context(closing(Ours(ground)))
    curator = stack.enter_context(closing(Curator(ground, folder / "curator.log")))
    tables: dict[str, Any] = {}
    bars: dict[str, dict[str, Any]] = {}

    def keep(title: str, figures: Figures, found: dict[str, dict[str, Any]]) -> None:
        progress("")
        tables[title] = figures.table()
        bars.update(found)
        print_table(title, tables[title])

    for kind in [kind for kind in KINDS if kind in arguments.only]:
        if kind == "backlog":
            keep("a deep queue, 5 B", *backlog(ground, ours, arguments.backlog, arguments.rounds))
        elif kind == "four":
            keep(
                "four consumers, 100 B",
                *four(ground, ours, curator, arguments.items, arguments.rounds, arguments.warm_up),
            )
        else:
            for size in arguments.sizes:
                title = f"{kind}, {size} B"
                work = jobs(kind, ground, ours, curator, arguments.items, size)
                figures = measure(title, arguments.rounds, arguments.warm_up, work, ground.settle)
                keep(title, figures, ratios(figures, size))
    return tables, bars


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-up", type=int, default=4, help="rounds of each table that are not counted")
    parser.add_argument("--sizes", type=int, nargs="+", default=[5, 100, 1000], help="bytes of an item")
    parser.add_argument("--items", type=int, default=2000, help="for Curator to consume; the quick measurements take more")
    parser.add_argument("--backlog", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        tables, bars = run(arguments, stack)
    print_table("ratios of medians", bars)
    path = save("queues", {"arguments": vars(arguments), "k_per_s": tables, "ratios": bars})
    print("saved:", path)


if __name__ == "__main__":
    main()
