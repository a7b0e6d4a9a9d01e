"""Shows for each mutant which test kills it: ``make mutants``.

The tests run on an unmutated copy first, where all must pass. Then each mutant is made in a copy,
one at a time, and the test that must kill it is run there, on servers of its own. Killed is a
mutant whose test ran and failed: one that could not begin, or was skipped, proves nothing.
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
"""For one test; ten more of these until a run of many is given up."""
_EDITED_S = count(1_000_000_000)
"""Every edit has a time of its own, or Python would take compiled code for that of another edit."""


class Verdict(Enum):
    """What a test says of a mutant."""

    KILLED = "KILLED"
    SURVIVED = "SURVIVED"
    TIMED_OUT = "TIMED OUT"
    NOT_RUN = "NOT RUN"


@dataclass(frozen=True, slots=True)
class Outcome:
    """``told``: by which test, and what that said."""

    verdict: Verdict
    told: str
    took_s: float


def main() -> int:
    """Run what was asked for; returns the exit code."""
    options = _options()
    chosen = [one for one in MUTANTS if _is_chosen(one, options.only)]
    for one in chosen:
        edited(ROOT, one)
    began_s = time.monotonic()
    with _copies(options.jobs) as copies, ThreadPoolExecutor(options.jobs) as pool:
        trees: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for tree in copies:
            trees.put(tree)
        tests = sorted({one.killed_by for one in chosen})
        shares = [tests[number :: options.jobs] for number in range(options.jobs)]
        print(f"{len(tests)} tests without a mutant ...", flush=True)
        bad = [line for lines in pool.map(_without_a_mutant, copies, shares) for line in lines]
        if bad:
            print("they must all pass:", *bad, sep="\n  ")
            return 2
        print(f"they pass; {len(chosen)} mutants ...", flush=True)
        outcomes = list(pool.map(lambda one: _with(one, trees), chosen))
    alive = sum(each.verdict is not Verdict.KILLED for each in outcomes)
    minutes = (time.monotonic() - began_s) / 60
    print(f"{len(chosen)} mutants, {len(chosen) - alive} killed, in {minutes:.0f} minutes")
    for one, outcome in zip(chosen, outcomes, strict=True):
        if outcome.verdict is not Verdict.KILLED:
            print(f"{outcome.verdict.value}: {one.name}: {outcome.told}")
    return 1 if alive else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", metavar="TEXT", help="mutants whose name, file or test holds TEXT")
    parser.add_argument("--jobs", type=int, default=2, help="copies in which mutants are tried at a time (2)")
    return parser.parse_args()


def _is_chosen(one: Mutant, texts: Sequence[str] | None) -> bool:
    about = " ".join([one.name, one.killed_by, *(edit.file for edit in one.edits)]).lower()
    return texts is None or any(text.lower() in about for text in texts)


@contextmanager
def _copies(number: int) -> Iterator[list[Path]]:
    """Copies of what git knows of, as it stands in the work tree."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    names = [name for name in listed.stdout.decode().split("\0") if name and (ROOT / name).is_file()]
    with tempfile.TemporaryDirectory(prefix="leaderq-mutants-") as folder:
        trees = [Path(folder, str(each)) for each in range(number)]
        for tree in trees:
            for name in names:
                path = tree / name
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, path)
        yield trees


def _without_a_mutant(tree: Path, tests: Sequence[str]) -> list[str]:
    """What is wrong with the tests themselves."""
    if not tests:
        return []
    cases = _run(tree, tests, limit_s=10 * LIMIT_S)
    passed = {name for name, said in cases if said is None}
    bad = [f"{name}: {said}" for name, said in cases if said is not None]
    unheard = [each for each in tests if not any(name.startswith(each.split("::")[1]) for name in passed)]
    return bad or [f"{each}: did not run" for each in unheard]


def _with(one: Mutant, trees: queue.SimpleQueue[Path]) -> Outcome:
    """What the test of ``one`` says of it."""
    tree = trees.get()
    began_s = time.monotonic()
    before = {path: path.read_text() for path in edited(tree, one)}
    try:
        _write(edited(tree, one))
        cases = _run(tree, [one.killed_by], "--exitfirst", limit_s=2 * LIMIT_S)
    finally:
        _write(before)
        trees.put(tree)
    verdict, told = _judged(one, cases)
    outcome = Outcome(verdict, told, time.monotonic() - began_s)
    print(f"{outcome.verdict.value:9} {outcome.took_s:5.1f} s  {one.name}\n{'':19}{told}", flush=True)
    return outcome


def _write(texts: Mapping[Path, str]) -> None:
    at_s = next(_EDITED_S)
    for path, text in texts.items():
        path.write_text(text)
        os.utime(path, (at_s, at_s))


def _judged(one: Mutant, cases: list[tuple[str, str | None]]) -> tuple[Verdict, str]:
    failed = [(name, said) for name, said in cases if said is not None]
    if not cases or any(said.startswith("did not run") for _, said in failed):
        return Verdict.NOT_RUN, "; ".join(f"{name}: {said}" for name, said in failed)
    if not failed:
        return Verdict.SURVIVED, one.killed_by
    name, said = failed[0]
    told = f"{one.killed_by.partition('::')[0]}::{name}: {said}"
    if "Timeout (>" in said and not one.may_hang:
        return Verdict.TIMED_OUT, told
    return Verdict.KILLED, told


def _run(tree: Path, tests: Sequence[str], *more: str, limit_s: float) -> list[tuple[str, str | None]]:
    """Run ``tests`` in ``tree``; returns the name of each, and what it said if it did not pass."""
    report, output = tree / "mutants.xml", tree / "mutants.txt"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--timeout={LIMIT_S}"]
    command += [f"--junitxml={report}", *more, *tests]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    with output.open("w") as file:
        process = subprocess.Popen(command, cwd=tree, env=environment, stdout=file, stderr=file)
        _end_within(process, limit_s)
    if not report.exists():
        return [("pytest", f"did not run: exit code {process.returncode}: {output.read_text()[-500:]}")]
    return [(case.get("name", ""), _said(case)) for case in ElementTree.parse(report).iter("testcase")]


def _end_within(process: subprocess.Popen[bytes], limit_s: float) -> None:
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            process.wait(limit_s)
            return
        except subprocess.TimeoutExpired:
            process.send_signal(number)
            limit_s = 30
    process.wait()


def _said(case: ElementTree.Element) -> str | None:
    for kind in ("failure", "error", "skipped"):
        found = case.find(kind)
        if found is not None:
            text = (found.get("message") or "").strip().split("\n")[0][:200]
            return text if kind == "failure" else f"did not run: {text}"
    return None


if __name__ == "__main__":
    sys.exit(main())
