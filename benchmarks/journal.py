"""The producer's journal beside persist-queue, litequeue, diskcache and a bare file: one run, one
disk, 256 B, rounds in turn, medians.

    pip install 'leaderq[bench]'    # persist-queue, litequeue, diskcache; a missing one is left out
    python benchmarks/journal.py [--rounds 5] [--records 2000] [--gib 1] [--only KIND ...]
        [--place DIR]

Durable means on all sides that a record is on the disk when the call returns: fdatasync, or
SQLite's ``synchronous=FULL`` in its write-ahead log. Relaxed means left to the system: ``NO_SYNC``,
``synchronous=NORMAL``. A first round warms up and is not counted. The quick sides take
``--records`` times 50. The bare file is a write at its end and fdatasync, with neither ids nor
checksums; once as it grows, and once with zeros written ahead before the clock starts, as our
journal writes them while it runs. Everything lies in ``--place`` (default: the
system's temporary folder); a folder in memory measures no disk.

=========  =========================================================================================
single     one caller, durable
relaxed    one caller, left to the system
group      durable, in groups of the same size on all sides: 100 and 2,000 records a commit
pipelined  durable, many on their way: ``append_soon`` with a callback each, which chooses its own
           groups; their size is printed
callers    durable, 4 and 16 threads of ``append``
take       read and acknowledge all, 100 at a time; ours notes that on disk half a second later, or
           at once and forced out (``flush``); SQLite in one transaction where the library has one
open       seconds to open ``--gib`` GiB of unread records: closed, killed, and without its cursor;
           memory that this takes
=========  =========================================================================================
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from figures import percentile, print_table, save
from journal_sides import BATCH, OTHERS, RawFile, ZeroedFile

from leaderq.producing.journal import EVERY_ITEM, NO_SYNC, Journal

SIZE, MORE = 256, 50
GROUPS = (100, 2000)
PAYLOAD = bytes(bytearray(range(256)))
OURS, BARE, ZEROED = "Journal", "bare file", "bare file, zeros ahead"
KINDS = ("single", "relaxed", "group", "pipelined", "callers", "take", "open")
SINGLE_PER_S, OF_BARE, OF_BARE_SINGLE, OF_BEST = 9_000, 0.6, 0.8, 3.0
Work = Callable[[Path], float]
Job = tuple[int, Work]
Rows = dict[str, dict[str, Any]]


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def ours(count: int, policy: Any, place: Path) -> float:
    with Journal(place, sync=policy) as journal:
        append = journal.append
        return timed(lambda: [append(PAYLOAD) for _ in range(count)])


def theirs(make: Callable[..., Any], count: int, durable: bool, place: Path) -> float:
    side = make(place, durable=durable)
    put = side.put
    took_s = timed(lambda: [put(PAYLOAD) for _ in range(count)])
    side.close()
    return took_s


def in_groups(count: int, size: int, place: Path) -> float:
    batch = [PAYLOAD] * size
    with Journal(place) as journal:
        return timed(lambda: [journal.append_many(batch) for _ in range(count // size)])


def their_groups(make: Callable[..., Any], count: int, size: int, place: Path) -> float:
    side = make(place, durable=True)
    took_s = timed(lambda: [side.put_batch(PAYLOAD, size) for _ in range(count // size)])
    side.close()
    return took_s


def pipelined(sizes: list[float], count: int, place: Path) -> float:
    told = [0]

    def on_durable(record_id: int | None, error: Exception | None) -> None:
        told[0] += error is None

    def work() -> None:
        for _ in range(count):
            journal.append_soon(PAYLOAD, on_durable)
        journal.flush()

    with Journal(place) as journal:
        took_s = timed(work)
        sizes.append(journal.counters.appended / journal.counters.batches)
    assert told == [count]
    return took_s


def by_threads(count: int, threads: int, place: Path) -> float:
    with Journal(place) as journal:

        def share() -> None:
            for _ in range(count // threads):
                journal.append(PAYLOAD)

        callers = [threading.Thread(target=share) for _ in range(threads)]
        return timed(lambda: ([one.start() for one in callers], [one.join() for one in callers]))


def taken(count: int, is_forced: bool, place: Path) -> float:
    with Journal(place, sync=NO_SYNC) as journal:
        for _ in range(count // BATCH):
            journal.append_many([PAYLOAD] * BATCH)

        def work() -> None:
            after = 0
            while entries := journal.read(after, max_items=BATCH):
                journal.ack_many([entry.id for entry in entries])
                after = entries[-1].id
                if is_forced:
                    journal.flush()

        took_s = timed(work)
        assert journal.depth == 0
    return took_s


def their_taken(make: Callable[..., Any], count: int, place: Path) -> float:
    side = make(place, durable=False)
    for _ in range(count):
        side.put(PAYLOAD)
    took_s = timed(lambda: [side.take() for _ in range(count // BATCH)])
    side.close()
    return took_s


def jobs(kind: str, records: int, sizes: list[float]) -> dict[str, Job]:
    """What one round of a kind measures: records and the measurement, by row."""
    more = records * MORE
    others = {name: make for name, (module, make) in OTHERS.items() if find_spec(module)}
    if kind in ("single", "relaxed"):
        durable = kind == "single"
        count = records if durable else more // 10
        found: dict[str, Job] = {
            OURS: (count, partial(ours, count, EVERY_ITEM if durable else NO_SYNC)),
            BARE: (count, partial(theirs, RawFile, count, durable)),
        }
        if durable:
            found[ZEROED] = (count, partial(theirs, ZeroedFile, count, durable))
        return found | {
            name: (records, partial(theirs, make, records, durable))
            for name, make in others.items()
            if not (durable and "file" in name)  # it is never durable item by item
        }
    if kind == "group":
        found = {}
        few = records * 5
        for size in GROUPS:
            found[f"{OURS}, {size}"] = (more, partial(in_groups, more, size))
            found[f"{BARE}, {size}"] = (more, partial(their_groups, RawFile, more, size))
            found[f"{ZEROED}, {size}"] = (more, partial(their_groups, ZeroedFile, more, size))
            for name, make in others.items():
                if hasattr(make, "put_batch"):
                    found[f"{name}, {size}"] = (few, partial(their_groups, make, few, size))
        return found
    if kind == "pipelined":
        return {f"{OURS}, append_soon": (more, partial(pipelined, sizes, more))}
    if kind == "callers":
        count = records * 4
        return {f"{OURS}, {n} threads": (count, partial(by_threads, count, n)) for n in (4, 16)}
    found = {
        OURS: (more, partial(taken, more, False)),
        f"{OURS}, flushed": (more // 10, partial(taken, more // 10, True)),
    }
    return found | {
        name: (records, partial(their_taken, make, records)) for name, make in others.items()
    }


def measure(kind: str, rounds: int, records: int, place: Path) -> Rows:
    """All jobs of a kind in turn, ``rounds`` times after one that is not counted."""
    seconds: dict[str, list[float]] = {}
    sizes: list[float] = []
    work = jobs(kind, records, sizes)
    for number in range(rounds + 1):
        for row, (_, job) in work.items():
            with tempfile.TemporaryDirectory(dir=place) as folder:
                took_s = job(Path(folder))
            if number:
                seconds.setdefault(row, []).append(took_s)
    found = {row: figures(work[row][0], took) for row, took in seconds.items()}
    if sizes:
        for row in found.values():
            row["a commit"] = round(percentile(sizes, 0.5))
    return found


def figures(count: int, took: list[float]) -> dict[str, Any]:
    return {
        "records": count,
        "per s": round(count / percentile(took, 0.5)),
        "slowest": round(count / max(took)),
        "quickest": round(count / min(took)),
    }


def ratios(kind: str, rows: Rows) -> Rows:
    """Our rate over each of theirs in the same group size, what it has to be, and where we lose."""
    found: Rows = {}
    for suffix in [f", {size}" for size in GROUPS] if kind == "group" else [""]:
        mine = rows.get(f"{OURS}{suffix}")
        others = {
            row: values["per s"]
            for row, values in rows.items()
            if not row.startswith(OURS) and row.endswith(suffix)
        }
        if mine is None or not others:
            continue
        ratio = {row: mine["per s"] / per_s for row, per_s in others.items()}
        for row, value in ratio.items():
            found[f"{kind}: {OURS}{suffix} / {row}"] = beside(value)
        if kind == "group" and suffix == ", 100":
            judge(found, kind, f"{OURS}{suffix} / {ZEROED}{suffix}", OF_BARE)
            best = min(
                (row for row in ratio if "bare" not in row), key=ratio.__getitem__, default=""
            )
            if best:
                judge(found, kind, f"{OURS}{suffix} / {best}", OF_BEST)
        if kind == "single" and mine["per s"] < SINGLE_PER_S:
            judge(found, kind, f"{OURS} / {ZEROED}", OF_BARE_SINGLE)
        elif kind == "single":
            bar = f">= {SINGLE_PER_S:,}"
            found[f"{kind}: {OURS}"] = {
                "value": mine["per s"],
                "bar": bar,
                "met": "yes",
                "lost": "",
            }
    return found


def beside(ratio: float) -> dict[str, Any]:
    return {"value": round(ratio, 2), "bar": "", "met": "", "lost": "LOST" if ratio < 1 else ""}


def judge(found: Rows, kind: str, row: str, least: float) -> None:
    one = found[f"{kind}: {row}"]
    one["bar"], one["met"] = f">= {least}", "yes" if one["value"] >= least else "NO"


def opening(gib: float, place: Path) -> dict[str, dict[str, Any]]:
    """How long opening takes, in a process of its own, and what memory."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        writer = (
            "import sys; sys.path[:0] = [sys.argv[3]]; from journal import fill_and_die;"
            " fill_and_die(sys.argv[1], float(sys.argv[2]))"
        )
        here = str(Path(__file__).parent)
        subprocess.run([sys.executable, "-c", writer, folder, str(gib), here], check=True)
        rows = {"killed": opened(folder), "closed": opened(folder)}
        for slot in Path(folder).glob("cursor.*"):
            slot.unlink()
        rows["without cursor"] = opened(folder)
    return rows


def fill_and_die(folder: str, gib: float) -> None:
    """Write so much, and end without closing anything."""
    import os

    journal = Journal(folder, sync=NO_SYNC)
    while journal.bytes_used < gib * (1 << 30):
        journal.append_many([PAYLOAD] * 2000)
    os._exit(0)


def opened(folder: str) -> dict[str, Any]:
    code = """
import json, resource, sys
from leaderq.producing.journal import Journal
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
journal = Journal(sys.argv[1])
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
found = [journal.report.took_s, journal.depth, journal.bytes_used, (after - before) / 1024]
journal.close()
print(json.dumps(found))
"""
    out = subprocess.run(
        [sys.executable, "-c", code, folder], check=True, capture_output=True, text=True
    ).stdout
    took_s, records, size, more_mib = json.loads(out)
    gib = size / (1 << 30)
    return {
        "GiB": round(gib, 2),
        "records": records,
        "s": round(took_s, 3),
        "s/GiB": round(took_s / gib, 3),
        "MiB more": round(more_mib, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--place", type=Path, default=Path(tempfile.gettempdir()))
    given = parser.parse_args()
    missing = sorted({module for module, _ in OTHERS.values() if not find_spec(module)})
    if missing:
        remedy = "pip install 'leaderq[bench]'"
        print(f"left out, not installed ({remedy}): {', '.join(missing)}", file=sys.stderr)
    tables: dict[str, Any] = {}
    found: Rows = {}
    for kind in given.only:
        if kind == "open":
            tables[kind] = opening(given.gib, given.place)
            for row, values in tables[kind].items():
                bar = "<= 1" if row != "without cursor" else ""
                met = ("yes" if values["s/GiB"] <= 1 else "NO") if bar else ""
                found[f"open, {row}: s/GiB"] = {"value": values["s/GiB"], "bar": bar, "met": met}
        else:
            tables[kind] = measure(kind, given.rounds, given.records, given.place)
            found |= ratios(kind, tables[kind])
        print_table(f"{kind} ({SIZE} B)", tables[kind])
    if found:
        print_table("beside", found)
    what = {"bytes": SIZE, "rounds": given.rounds, "tables": tables, "ratios": found}
    print(f"\n{save('journal', what)}")


if __name__ == "__main__":
    main()
