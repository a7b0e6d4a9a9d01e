"""Shows for each mutant which test kills it: ``make mutants``.

First the tests run on an unchanged copy of the tree, where all must pass. Then each mutant is made
in a copy, one at a time, and the test that must kill it runs there, on servers of its own. A mutant
is killed when its test ran and failed: a test that could not begin, or was skipped, proves nothing.
"""

from __future__ import annotations

import argparse
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from itertools import count
from pathlib import Path
from xml.etree import ElementTree

from mutants.listed import MUTANTS
from mutants.mutant import Mutant, edited

ROOT = Path(__file__).parents[2]
LIMIT_S = 120
"""For one test. Those that may hang on their mutant have a quarter of it then."""
_edit_times_s = count(1_000_000_000)
"""Every edit has a time of its own: by it Python knows whether compiled code is still valid."""


class Verdict(Enum):
    """What a test says of a mutant."""

    KILLED = "KILLED"
    SURVIVED = "SURVIVED"
    TIMED_OUT = "TIMED OUT"
    NOT_RUN = "NOT RUN"


@dataclass(frozen=True, slots=True)
class Outcome:
    """``told``: by which test, and the first line of what it said."""

    verdict: Verdict
    told: str


def main() -> int:
    """Run what was asked for; returns the exit code."""
    options = _options()
    chosen = [one for one in MUTANTS if _is_chosen(one, options.only)]
    for one in chosen:
        edited(ROOT, one)
    began_s = time.monotonic()
    with _copies(options.jobs) as copies, ThreadPoolExecutor(options.jobs) as pool:
        tests = sorted({one.killed_by for one in chosen})
        print(f"{len(tests)} tests without a mutant ...", flush=True)
        shares = [tests[number :: options.jobs] for number in range(options.jobs)]
        unfit: dict[str, str] = {}
        for found in pool.map(_unfit, copies, shares):
            unfit |= found
        print(f"{len(unfit)} of them fail; {len(chosen)} mutants ...", flush=True)
        free: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for tree in copies:
            free.put(tree)
        outcomes = list(pool.map(lambda one: _try(one, free, unfit.get(one.killed_by)), chosen))
    took_s = time.monotonic() - began_s
    killed = [outcome.verdict is Verdict.KILLED for outcome in outcomes]
    print(f"{len(chosen)} mutants, {sum(killed)} killed, {took_s / 60:.0f} minutes")
    for one, outcome, is_killed in zip(chosen, outcomes, killed, strict=True):
        if not is_killed:
            print(f"{outcome.verdict.value}: {one.name}: {outcome.told}")
    return 0 if all(killed) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    only = "the mutants whose name, files or test contain one of these texts"
    parser.add_argument("--only", nargs="+", metavar="TEXT", help=only)
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (default: 2)")
    return parser.parse_args()


def _is_chosen(one: Mutant, texts: Sequence[str] | None) -> bool:
    about = " ".join([one.name, one.killed_by, *(edit.file for edit in one.edits)])
    return texts is None or any(text in about for text in texts)


@contextmanager
def _copies(number: int) -> Iterator[list[Path]]:
    """Copies of the work tree, without what git ignores."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    names = {name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()}
    with tempfile.TemporaryDirectory(prefix="leaderq-mutants-") as folder:
        trees = [Path(folder, str(each)) for each in range(number)]
        for tree in trees:
            for name in names:
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, tree / name)
        yield trees


def _unfit(tree: Path, tests: Sequence[str]) -> dict[str, str]:
    """Those of ``tests`` that do not pass as things are, and what they say."""
    cases = _run(tree, tests, LIMIT_S) if tests else []
    if cases and not cases[0].test:
        return dict.fromkeys(tests, cases[0].said)
    said: dict[str, str] = {}
    for test in tests:
        own = [case for case in cases if test in (case.test, case.test.partition("[")[0])]
        if not own or any(case.kind for case in own):
            said[test] = "; ".join(case.said for case in own) or "it was not run"
    return said


def _try(one: Mutant, free: queue.SimpleQueue[Path], unfit: str | None) -> Outcome:
    """What its test says of ``one``."""
    if unfit is not None:
        return Outcome(Verdict.NOT_RUN, f"{one.killed_by} fails without it: {unfit}")
    tree = free.get()
    began_s = time.monotonic()
    after = edited(tree, one)
    before = {path: path.read_text() for path in after}
    try:
        _write(after)
        cases = _run(tree, [one.killed_by], LIMIT_S / 4 if one.may_hang else LIMIT_S)
    finally:
        _write(before)
        free.put(tree)
    outcome = _judged(one, cases)
    took_s = time.monotonic() - began_s
    print(f"{outcome.verdict.value:9} {took_s:5.1f} s  {one.name}", flush=True)
    print(f"{'':19}{outcome.told}", flush=True)
    return outcome


def _write(texts: Mapping[Path, str]) -> None:
    at_s = next(_edit_times_s)
    for path, text in texts.items():
        path.write_text(text)
        os.utime(path, (at_s, at_s))


@dataclass(frozen=True, slots=True)
class Case:
    """One test that pytest has run. ``kind``: ``failure``, ``error``, ``skipped``, or nothing."""

    test: str
    kind: str = ""
    said: str = ""


def _judged(one: Mutant, cases: Sequence[Case]) -> Outcome:
    for case in cases:
        if case.kind == "failure":
            is_late = "Timeout (>" in case.said and not one.may_hang
            verdict = Verdict.TIMED_OUT if is_late else Verdict.KILLED
            return Outcome(verdict, f"{case.test}: {case.said}")
    bad = [f"{case.test}: {case.kind}: {case.said}" for case in cases if case.kind]
    if bad or not cases:
        return Outcome(Verdict.NOT_RUN, "; ".join(bad))
    return Outcome(Verdict.SURVIVED, one.killed_by)


def _run(tree: Path, tests: Sequence[str], limit_s: float) -> list[Case]:
    """Run ``tests`` in ``tree``."""
    report, output = tree / "mutants.xml", tree / "mutants.txt"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", f"--timeout={limit_s:.0f}", f"--junitxml={report}"]
    with output.open("w") as file:
        process = subprocess.Popen(
            [*command, *tests],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            stdout=file,
            stderr=file,
        )
        _end_within(process, len(tests) * limit_s + LIMIT_S)
    if report.exists() and process.returncode in (0, 1):
        return [_case(found) for found in ElementTree.parse(report).iter("testcase")]
    said = output.read_text()[-500:]
    return [Case("", "error", f"pytest: exit code {process.returncode}: {said}")]


def _case(found: ElementTree.Element) -> Case:
    *folders, last = found.get("classname", "").split(".")
    if last.startswith("Test"):  # a class in a module
        last = f"{folders.pop()}.py::{last}"
    else:
        last += ".py"
    test = "/".join([*folders, f"{last}::{found.get('name')}"])
    for kind in ("failure", "error", "skipped"):
        trouble = found.find(kind)
        if trouble is not None:
            lines = (trouble.get("message") or "").strip().splitlines()
            return Case(test, kind, "".join(lines[:1])[:200])
    return Case(test)


def _end_within(process: subprocess.Popen[bytes], limit_s: float) -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            process.wait(limit_s)
            return
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            limit_s = 30.0
    process.wait()


if __name__ == "__main__":
    sys.exit(main())
