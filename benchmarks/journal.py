"""The producer's journal beside persist-queue, litequeue, diskcache and a bare file: one run, one disk, 256 B, rounds in turn, medians.

    pip install 'leaderq[bench]'        # persist-queue, litequeue, diskcache; what is missing is left out, and it says so
    python benchmarks/journal.py [--rounds 5] [--records 2000] [--gib 1] [--only single group ...] [--place DIR]

Durable means on all sides that a record is on the disk when the call returns: fdatasync, or SQLite's ``synchronous=FULL`` in its
write-ahead log. Relaxed means left to the system: ``NO_SYNC``, ``synchronous=NORMAL``. A first round, which warms up, is not counted.
The quick sides take ``--records`` times 50. Everything lies in ``--place`` (the system's temporary folder unless told); a place in
memory measures no disk.

=========  =================================================================================================================
single     one caller, durable; ``append`` from a thread of its own, and from the main thread
relaxed    one caller, left to the system
group      durable, many on their way: ``append_soon`` with a callback each; ``append_many`` and transactions of 100
callers    durable, 4 and 16 threads of ``append``
take       read and acknowledge all, in batches of 100
open       seconds to open ``--gib`` GiB of unread records: closed, killed, and without its cursor; memory that this takes
=========  =================================================================================================================
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
from journal_sides import BATCH, OTHERS, RawFile

from leaderq.producing.journal import EVERY_ITEM, NO_SYNC, Journal

SIZE, MORE = 256, 50
PAYLOAD = bytes(bytearray(range(256)))
OURS = "Journal"
MAIN = f"{OURS}, main thread"
KINDS = ("single", "relaxed", "group", "callers", "take", "open")
LEAST = {("single", OURS): 9_000, ("group", f"{OURS}, append_soon"): 300_000}
Job = tuple[int, Callable[[Path], float]]


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def ours(count: int, policy: Any, place: Path) -> float:
    with Journal(place, sync=policy) as journal:
        append = journal.append
        return in_thread(lambda: [append(PAYLOAD) for _ in range(count)])


def ours_in_main(count: int, policy: Any, place: Path) -> float:
    with Journal(place, sync=policy) as journal:
        append = journal.append
        return timed(lambda: [append(PAYLOAD) for _ in range(count)])


def in_thread(work: Callable[[], object]) -> float:
    """In the main thread, where a signal may raise anywhere, our ``append`` hands over to the writer's thread."""
    took: list[float] = []
    caller = threading.Thread(target=lambda: took.append(timed(work)))
    caller.start()
    caller.join()
    return took[0]


def theirs(make: Callable[..., Any], count: int, durable: bool, place: Path) -> float:
    side = make(place, durable=durable)
    put = side.put
    took_s = timed(lambda: [put(PAYLOAD) for _ in range(count)])
    side.close()
    return took_s


def pipelined(count: int, place: Path) -> float:
    told = [0]

    def on_durable(record_id: int | None, error: Exception | None) -> None:
        told[0] += error is None

    def work() -> None:
        for _ in range(count):
            journal.append_soon(PAYLOAD, on_durable)
        journal.flush()

    with Journal(place) as journal:
        took_s = timed(work)
    assert told == [count]
    return took_s


def in_hundreds(count: int, place: Path) -> float:
    batch = [PAYLOAD] * BATCH
    with Journal(place) as journal:
        return timed(lambda: [journal.append_many(batch) for _ in range(count // BATCH)])


def their_hundreds(make: Callable[..., Any], count: int, place: Path) -> float:
    side = make(place, durable=True)
    took_s = timed(lambda: [side.put_batch(PAYLOAD, BATCH) for _ in range(count // BATCH)])
    side.close()
    return took_s


def by_threads(count: int, threads: int, place: Path) -> float:
    with Journal(place) as journal:

        def share() -> None:
            for _ in range(count // threads):
                journal.append(PAYLOAD)

        callers = [threading.Thread(target=share) for _ in range(threads)]
        return timed(lambda: ([each.start() for each in callers], [each.join() for each in callers]))


def taken(count: int, place: Path) -> float:
    with Journal(place, sync=NO_SYNC) as journal:
        for _ in range(count // BATCH):
            journal.append_many([PAYLOAD] * BATCH)

        def work() -> None:
            after = 0
            while entries := journal.read(after, max_items=BATCH):
                journal.ack_many([entry.id for entry in entries])
                after = entries[-1].id

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


def jobs(kind: str, records: int) -> dict[str, Job]:
    """What one round of a kind measures: records and the measurement, by row."""
    more = records * MORE
    others = {name: make for name, (module, make) in OTHERS.items() if find_spec(module)}
    if kind in ("single", "relaxed"):
        durable = kind == "single"
        count = records if durable else more // 10
        found: dict[str, Job] = {OURS: (count, partial(ours, count, EVERY_ITEM if durable else NO_SYNC))}
        found[MAIN] = (count, partial(ours_in_main, count, EVERY_ITEM if durable else NO_SYNC))
        found["bare file"] = (count, partial(theirs, RawFile, count, durable))
        for name, make in others.items():
            if not (durable and "file" in name):
                found[name] = (records, partial(theirs, make, records, durable))
        return found
    if kind == "group":
        found = {
            f"{OURS}, append_soon": (more, partial(pipelined, more)),
            f"{OURS}, append_many": (more, partial(in_hundreds, more)),
        }
        found["bare file"] = (more, partial(their_hundreds, RawFile, more))
        batched = [name for name, make in others.items() if hasattr(make, "put_batch")]
        return found | {name: (records * 5, partial(their_hundreds, others[name], records * 5)) for name in batched}
    if kind == "callers":
        return {f"{OURS}, {n} threads": (records * 4, partial(by_threads, records * 4, n)) for n in (4, 16)}
    found = {OURS: (more, partial(taken, more))}
    return found | {name: (records, partial(their_taken, make, records)) for name, make in others.items()}


def measure(kind: str, rounds: int, records: int, place: Path) -> dict[str, dict[str, Any]]:
    """All jobs of a kind in turn, ``rounds`` times after one that is not counted."""
    seconds: dict[str, list[float]] = {}
    work = jobs(kind, records)
    for number in range(rounds + 1):
        for row, (_, job) in work.items():
            with tempfile.TemporaryDirectory(dir=place) as folder:
                took_s = job(Path(folder))
            if number:
                seconds.setdefault(row, []).append(took_s)
    return {row: figures(work[row][0], took) for row, took in seconds.items()}


def figures(count: int, took: list[float]) -> dict[str, Any]:
    return {
        "records": count,
        "per s": round(count / percentile(took, 0.5)),
        "slowest": round(count / max(took)),
        "quickest": round(count / min(took)),
    }


def ratios(kind: str, rows: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Our rate over each of theirs; and beside what it has to be at least."""
    found = {}
    for row, values in rows.items():
        if row.startswith(OURS) and (least := LEAST.get((kind, row))):
            is_met = values["per s"] >= least
            found[f"{kind}: {row}"] = {"value": values["per s"], "bar": f">= {least:,}", "met": "yes" if is_met else "NO"}
    best = max((values["per s"] for row, values in rows.items() if row.startswith(OURS)), default=0)
    for row, values in rows.items():
        if not row.startswith(OURS):
            found[f"{kind}: {OURS} / {row}"] = {"value": round(best / values["per s"], 2), "bar": "", "met": ""}
    return found


def opening(gib: float, place: Path) -> dict[str, dict[str, Any]]:
    """How long opening takes, in a process of its own, and what memory."""
    with tempfile.TemporaryDirectory(dir=place) as folder:
        writer = "import sys; sys.path[:0] = [sys.argv[3]]; from journal import fill_and_die; fill_and_die(sys.argv[1], float(sys.argv[2]))"
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
report = journal.report
journal.close()
print(json.dumps([report.took_s, report.records, report.bytes_used, (after - before) / 1024]))
"""
    out = subprocess.run([sys.executable, "-c", code, folder], check=True, capture_output=True, text=True).stdout
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
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--records", type=int, default=2000)
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--place", type=Path, default=Path(tempfile.gettempdir()))
    given = parser.parse_args()
    missing = sorted({module for module, _ in OTHERS.values() if not find_spec(module)})
    if missing:
        print(f"left out, for they are not installed (pip install 'leaderq[bench]'): {', '.join(missing)}", file=sys.stderr)
    tables: dict[str, Any] = {}
    found: dict[str, dict[str, Any]] = {}
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
    print_table("beside", found)
    print(f"\n{save('journal', {'bytes': SIZE, 'rounds': given.rounds, 'tables': tables, 'ratios': found})}")


if __name__ == "__main__":
    main()
