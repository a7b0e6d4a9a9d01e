"""Runs the named controls: each edits a copy of the tree, where its tests must fail then."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue

from mutation.controls import Control

ROOT = Path(__file__).parents[2]
LIMIT_S = 240.0
_ENVIRON = {"PYTHONDONTWRITEBYTECODE": "1"}
"""Python compares only time and size to know whether compiled code is still valid."""


def run_controls(controls: Sequence[Control], jobs: int) -> list[tuple[Control, str]]:
    """Those that survive, or cannot be tried, and why."""
    trouble: list[tuple[Control, str]] = []
    with _copies(jobs) as copies, ThreadPoolExecutor(jobs) as pool:
        free: SimpleQueue[Path] = SimpleQueue()
        for tree in copies:
            free.put(tree)
        tests = sorted({test for one in controls for test in one.tests})
        code, said = _run(copies[0], tests, LIMIT_S * 5)
        if code != 0:
            return [(one, f"tests fail without any edit: {said}") for one in controls]
        for one, said in zip(
            controls, pool.map(lambda one: _try(one, free), controls), strict=True
        ):
            if said:
                trouble.append((one, said))
    return trouble


def _try(one: Control, free: SimpleQueue[Path]) -> str:
    """Why it is not killed; ``""``: it is."""
    tree, began_s = free.get(), time.monotonic()
    path = tree / one.file
    before = path.read_text()
    try:
        path.write_text(before.replace(one.old, one.new))
        code, said = _run(tree, one.tests, LIMIT_S)
    finally:
        path.write_text(before)
        free.put(tree)
    verdict = {0: "SURVIVES", 1: "killed"}.get(code, "NOT RUN")
    print(f"{verdict:9}{time.monotonic() - began_s:5.1f} s  {one.name}", flush=True)
    if code == 1:
        return ""
    return f"survives {', '.join(one.tests)}" if code == 0 else said


@contextmanager
def _copies(number: int) -> Iterator[list[Path]]:
    """Copies of the work tree, without what git ignores."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    names = {name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()}
    with tempfile.TemporaryDirectory(prefix="leaderq-controls-") as folder:
        trees = [Path(folder, str(each)) for each in range(number)]
        for tree in trees:
            for name in names:
                (tree / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, tree / name)
        yield trees


def _run(tree: Path, tests: Sequence[str], limit_s: float) -> tuple[int, str]:
    """pytest's exit code, and the end of what it said."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    done = subprocess.run(
        ["timeout", "--signal=KILL", str(limit_s), *command],  # with all that it has started
        cwd=tree,
        env={**os.environ, **_ENVIRON, "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'tests'}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout[-500:] or "it took too long: no verdict"
