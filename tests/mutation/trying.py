"""Tries the edits of one module: a process for each, which runs the tests that reach its line.

The tests are collected once, in a process of their own, the *collector*. For an edit in a function
the collector forks; the child gives the function its new code and runs, quickest first, the tests
that ran that line without the edit. An edit of a table or a class, and one that nobody has noticed
so, is made before anything is imported: that child is forked by the main process, which has
imported nothing of leaderq.
"""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.machinery
import math
import os
import pickle
import resource
import signal
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, Phase, settings

from mutation.operators import Edit, edits_of

ROOT = Path(__file__).parents[2]
LIMIT_S = 4.0
"""Time of the processor for the tests of one edit, above twice what they need without it."""
WAITS_S = 30.0
"""Whoever uses none of it for so long has hung. Time alone is no verdict on a busy machine."""


class Verdict(Enum):
    """What the tests say of an edit."""

    KILLED = "killed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"


@dataclass(slots=True)
class Tried:
    """The outcome for one module. ``unfit``: tests that fail without any edit; ``took_s``: the
    processor's time for all; ``each_s``: for each test without any edit.
    """

    verdicts: dict[str, Verdict] = field(default_factory=dict)
    unfit: list[str] = field(default_factory=list)
    took_s: float = 0.0
    each_s: dict[str, float] = field(default_factory=dict)

    @property
    def limit_s(self) -> float:
        return LIMIT_S + 2 * sum(self.each_s.values())


def tree_of(module: str) -> tuple[Path, ast.Module]:
    """The file of ``module``, and its tree."""
    path = ROOT / f"leaderq/{module.replace('.', '/')}.py"
    return path, ast.parse(path.read_text())


def tried(
    module: str, tests: Sequence[str], jobs: int, only: set[str] | None = None
) -> tuple[list[Edit], Tried]:
    """The edits of ``module``, all or those in ``only``, and what ``tests`` say of them."""
    began_s = _used_s()
    path, tree = tree_of(module)
    edits = [edit for edit in edits_of(tree, module) if only is None or edit.id in only]

    def edited(edit: Edit) -> CodeType:
        edit.apply()
        return compile(tree, str(path), "exec")

    name, inside = f"leaderq.{module}", [edit for edit in edits if edit.is_inside]
    collector = _Collector(name, str(path), edited, inside, jobs)
    found: Tried | None = _in_child(partial(collector.run, tests))
    if found is None or not found.each_s:
        raise RuntimeError(f"the tests of {module} cannot be run")
    left = [e for e in edits if found.verdicts.get(e.id, Verdict.SURVIVED) is Verdict.SURVIVED]
    quickest = _QuickestFirst(found.each_s)
    runs = [lambda e=e: passes_with({name: edited(e)}, tests, quickest) for e in left]
    for edit, verdict in zip(left, each(runs, jobs, found.limit_s), strict=True):
        found.verdicts[edit.id] = verdict
    found.took_s = _used_s() - began_s
    return edits, found


def _used_s() -> float:
    """The processor's time that children of this process have taken."""
    used = os.times()
    return used.children_user + used.children_system


def use_profile() -> None:
    """Hypothesis draws the same examples for every edit, and does not shrink what it found.

    The profile of tests/conftest.py inherits from this one, because it is made after it.
    """
    settings.register_profile(
        "mutation",
        deadline=None,
        derandomize=True,
        database=None,
        phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )
    settings.load_profile("mutation")


_OPTIONS = ["-qq", "-x", "--assert=plain", "-pno:cacheprovider", "-pno:xdist", "-otimeout=0"]
_OPTIONS += ["--tb=native"]  # others parse the files of all frames of a failure, which nobody reads


# -- the collector ---------------------------------------------------------------------------------


@dataclass(slots=True)
class _Collector:
    """Runs the collected tests in its own way. A plugin of pytest."""

    module: str
    path: str
    edited: Callable[[Edit], CodeType]
    edits: Sequence[Edit]
    jobs: int
    tried: Tried = field(default_factory=Tried)

    def run(self, tests: Sequence[str]) -> Tried:
        pytest.main([*_OPTIONS, *tests], plugins=[self])
        return self.tried

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            return True
        importlib.import_module(self.module)
        reached: dict[int, set[int]]
        self.tried, reached = _in_child(partial(_baseline, session.items, self.path))
        functions = _functions_of(self.path)
        gc.freeze()
        runs = []
        for edit in self.edits:
            lines = {*range(edit.line, edit.end_line + 1)}
            fit = [number for number, ran in reached.items() if not lines.isdisjoint(ran)]
            fit.sort(key=lambda number: self.tried.each_s[session.items[number].nodeid])
            items = [session.items[number] for number in fit]
            runs.append(partial(self._replace, edit, items, functions))
        verdicts = each(runs, self.jobs, self.tried.limit_s)
        ids = [edit.id for edit in self.edits]
        self.tried.verdicts = dict(zip(ids, verdicts, strict=True))
        return True

    def _replace(self, edit: Edit, items: Sequence[pytest.Item], functions: _Functions) -> int:
        for code in _codes_in(self.edited(edit)):
            for function in functions.get((code.co_firstlineno, code.co_name), ()):
                with suppress(ValueError):  # it uses other variables of the function around it
                    function.__code__ = code
        return 0 if all(_passes(items, number) for number in range(len(items))) else 1


def _baseline(items: Sequence[pytest.Item], path: str) -> tuple[Tried, dict[int, set[int]]]:
    """What each test took, and which lines of the module it ran."""
    found, reached = Tried(), defaultdict[int, set[int]](set)

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        return trace_lines if frame.f_code.co_filename == path else None

    def trace_lines(frame: FrameType, event: str, arg: Any) -> Any:
        lines.add(frame.f_lineno)
        return trace_lines

    for number, item in enumerate(items):
        lines = set[int]()
        began_s = time.process_time()
        threading.settrace(trace)
        sys.settrace(trace)
        is_fit = _passes(items, number)
        sys.settrace(None)
        threading.settrace(None)
        if is_fit:
            found.each_s[item.nodeid] = time.process_time() - began_s
            reached[number] = lines
        else:
            found.unfit.append(item.nodeid)
    return found, reached


def _passes(items: Sequence[pytest.Item], number: int) -> bool:
    following = items[number + 1] if number + 1 < len(items) else None
    reports = runtestprotocol(items[number], log=False, nextitem=following)
    return not any(report.failed for report in reports)


_Functions = Mapping[tuple[int, str], Sequence[FunctionType]]


def _functions_of(path: str) -> _Functions:
    """The functions that were made from the file at ``path``, by their first line and name."""
    found: dict[tuple[int, str], list[FunctionType]] = defaultdict(list)
    gc.unfreeze()  # what conftest.py has frozen is not told either
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename == path:
            found[each.__code__.co_firstlineno, each.__code__.co_name].append(each)
    assert found, f"no function of {path} is found, so every edit would take the slow way"
    return found


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes_in(each)


# -- before anything is imported -------------------------------------------------------------------


def passes_with(codes: Mapping[str, CodeType], tests: Sequence[str], *plugins: object) -> int:
    """pytest's exit code in this process, where modules are imported so."""
    loader = importlib.machinery.SourceFileLoader
    as_usual = loader.get_code
    loader.get_code = lambda self, name: (  # type: ignore[method-assign]
        codes.get(name) or as_usual(self, name)
    )
    return int(pytest.main([*_OPTIONS, *tests], plugins=plugins))


@dataclass(slots=True)
class _QuickestFirst:
    """Runs the tests that take least time first, and leaves out those that fail anyway."""

    each_s: Mapping[str, float]

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        known = [item for item in items if item.nodeid in self.each_s]
        items[:] = sorted(known, key=lambda item: self.each_s[item.nodeid])


# -- processes -------------------------------------------------------------------------------------


def _in_child(work: Callable[[], Any]) -> Any:
    """What ``work`` returns in a child of this process; None if the child fails."""
    with tempfile.TemporaryFile() as file:

        def run() -> int:
            file.write(pickle.dumps(work()))
            file.flush()
            return 0

        os.waitpid(_forked(run), 0)
        file.seek(0)
        said = file.read()
    return pickle.loads(said) if said else None


def each(runs: Sequence[Callable[[], int]], jobs: int, limit_s: float) -> list[Verdict]:
    """What each of ``runs`` ends with, in a child of its own that has ``limit_s`` of the
    processor's time.
    """
    verdicts = [Verdict.TIMED_OUT] * len(runs)
    waiting = list(enumerate(runs))[::-1]
    running: dict[int, _Running] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            number, run = waiting.pop()
            running[_forked(partial(_limited, run, limit_s))] = _Running(number)
        for pid, one in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                if code not in (-signal.SIGXCPU, -signal.SIGKILL):
                    verdicts[one.number] = Verdict.KILLED if code else Verdict.SURVIVED
                del running[pid]
            elif one.has_hung(pid):
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                del running[pid]
        time.sleep(0.002)
    return verdicts


@dataclass(slots=True)
class _Running:
    """A child at work. ``used``: what the system says of its time when it was looked at last."""

    number: int
    used: list[bytes] = field(default_factory=list)
    since_s: float = field(default_factory=time.monotonic)
    look_s: float = 0.0

    def has_hung(self, pid: int) -> bool:
        if (now_s := time.monotonic()) < self.look_s:
            return False
        self.look_s = now_s + 1.0
        used = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[11:15]
        if used != self.used:
            self.used, self.since_s = used, now_s
        return now_s - self.since_s > WAITS_S


def _limited(run: Callable[[], int], limit_s: float) -> int:
    os.setpgid(0, 0)
    used_s = math.ceil(time.process_time() + limit_s)
    resource.setrlimit(resource.RLIMIT_CPU, (used_s, used_s + 5))
    return run()


def _forked(run: Callable[[], int]) -> int:
    """The number of a child that says nothing, and ends with the code that ``run`` returns."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nowhere, descriptor)
        code = run()
    finally:
        os._exit(code)
