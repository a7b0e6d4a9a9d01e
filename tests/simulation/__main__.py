"""``make simulate SEEDS=100000``: leads so many lives of each kind, on all cores, and prints the
seeds that failed, with what was wrong.

``python -m simulation --kind "elections of rude careers" --seed 4711`` leads one life, and prints
its history.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from itertools import islice

from leaderq.testing.simulation.installing import lives_in_a_row
from simulation.kinds import KINDS

_CHUNK = 50


def _led(kind: str, seeds: range) -> list[tuple[int, str]]:
    with lives_in_a_row():
        led = [(seed, KINDS[kind](seed).problems) for seed in seeds]
    return [(seed, problems[0]) for seed, problems in led if problems]


def _show(kind: str, seed: int) -> int:
    verdict = KINDS[kind](seed)
    print("\n".join(verdict.history))
    print(*verdict.problems, sep="\n", file=sys.stderr)
    return 1 if verdict.problems else 0


def _lead_all(kinds: list[str], first: int, seeds: int, jobs: int) -> int:
    chunks = [
        (kind, range(at, min(at + _CHUNK, first + seeds)))
        for at in range(first, first + seeds, _CHUNK)
        for kind in kinds
    ]
    began_s, lives, failures = time.perf_counter(), 0, 0
    with ProcessPoolExecutor(jobs) as pool:
        left = iter(chunks)
        while batch := list(islice(left, 4 * jobs)):
            futures = [(kind, pool.submit(_led, kind, chunk)) for kind, chunk in batch]
            for kind, future in futures:
                for seed, problem in future.result():
                    failures += 1
                    print(f"kind={kind!r} seed={seed}: {problem}", flush=True)
            lives += sum(len(chunk) for _, chunk in batch)
    took_s = time.perf_counter() - began_s
    print(f"{lives} lives, {failures} failed, {lives / took_s:.0f} a second on {jobs} cores")
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="so many lives of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--kind", action="append", choices=[*KINDS], help="only this kind")
    parser.add_argument("--seed", type=int, help="lead this life, and print its history")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    given = parser.parse_args()
    kinds = given.kind or [*KINDS]
    if given.seed is not None:
        return _show(kinds[0], given.seed)
    return _lead_all(kinds, given.first, given.seeds, given.jobs)


if __name__ == "__main__":
    sys.exit(main())
