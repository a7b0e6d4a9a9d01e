"""Tries the edits of one module: a process for each, which runs the tests that reach its line.

The tests are collected once, in a process of their own, the *collector*. For an edit in a function
the collector forks; the child gives the function its new code and runs, quickest first, the tests
that ran that line without the edit. An edit of a table or a class is made before anything is
imported: that child is forked by the main process, which has imported nothing of leaderq.
"""

from __future__ import annotations

import ast
import gc
import importlib
import importlib.abc
import importlib.machinery
import math
import os
import pickle
import resource
import signal
import sys
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
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
_REIMPORT = 77


class Verdict(Enum):
    """What the tests say of an edit."""

    KILLED = "killed"
    TIMED_OUT = "timed out"
    SURVIVED = "survived"
    NOT_REACHED = "not reached"


@dataclass(slots=True)
class Tried:
    """The outcome for one module. ``unfit``: tests that fail without any edit; ``took_s``: the
    processor's time for all; ``each_s``: for each test without any edit.
    """

    verdicts: dict[str, Verdict] = field(default_factory=dict)
    unfit: list[str] = field(default_factory=list)
    took_s: float = 0.0
    each_s: dict[str, float] = field(default_factory=dict)


def tree_of(module: str) -> tuple[Path, ast.Module]:
    """The file of ``module``, and its tree."""
    path = ROOT / f"{module.replace('.', '/')}.py"
    return path, ast.parse(path.read_text())


def edits_in(module: str) -> list[Edit]:
    """All edits of ``module``."""
    return edits_of(tree_of(module)[1], module)


def tried(module: str, tests: Sequence[str], jobs: int, only: set[str] | None = None) -> Tried:
    """What ``tests`` say of the edits of ``module``: all, or those in ``only``."""
    began_s = _used_s()
    path, tree = tree_of(module)
    edits = [edit for edit in edits_of(tree, module) if only is None or edit.id in only]
    inside = [edit for edit in edits if edit.is_inside]
    found = _in_child(lambda: _collector(module, path, tree, inside, tests, jobs))
    if found is None or (found.unfit and not found.verdicts and inside):
        raise RuntimeError(f"the tests of {module} cannot be run")
    again = {name for name, verdict in found.verdicts.items() if verdict is None}
    outside = [edit for edit in edits if not edit.is_inside or edit.id in again]
    limit_s = LIMIT_S + 2 * found.took_s
    codes = _each(
        [_imported_anew(module, path, tree, edit, tests, found.each_s) for edit in outside],
        jobs,
        limit_s,
    )
    for edit, code in zip(outside, codes, strict=True):
        found.verdicts[edit.id] = _verdict(code)
    found.verdicts = {edit.id: found.verdicts[edit.id] for edit in edits}
    found.took_s = _used_s() - began_s
    return found


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


def _verdict(code: int | None) -> Verdict:
    if code in (None, -signal.SIGXCPU, -signal.SIGKILL):
        return Verdict.TIMED_OUT
    return Verdict.SURVIVED if code == 0 else Verdict.KILLED


# -- the collector ---------------------------------------------------------------------------------


def _collector(
    module: str,
    path: Path,
    tree: ast.Module,
    edits: Sequence[Edit],
    tests: Sequence[str],
    jobs: int,
) -> Tried:
    plugin = _Plugin(module, path, tree, edits, jobs)
    plugin.watch_the_import()
    pytest.main([*_OPTIONS, *tests], plugins=[plugin])
    return plugin.tried


class _Plugin:
    """Runs the collected tests in its own way."""

    def __init__(
        self, module: str, path: Path, tree: ast.Module, edits: Sequence[Edit], jobs: int
    ) -> None:
        self._module = module
        self._path = path
        self._tree = tree
        self._edits = edits
        self._jobs = jobs
        self.tried = Tried()
        self._import_lines: set[int] = set()

    def watch_the_import(self) -> None:
        """Note the lines of functions that run while the module is imported: who gave a table its
        values then would not be asked again.
        """

        def trace(frame: FrameType, event: str, arg: Any) -> Any:
            code = frame.f_code
            is_ours = code.co_filename == str(self._path) and code.co_name != "<module>"
            return trace_lines if is_ours else None

        def trace_lines(frame: FrameType, event: str, arg: Any) -> Any:
            self._import_lines.add(frame.f_lineno)
            return trace_lines

        sys.settrace(trace)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            self.tried.unfit = ["they cannot be collected"]
            return True
        importlib.import_module(self._module)
        sys.settrace(None)
        items = session.items
        baseline = _in_child(lambda: _baseline(items, str(self._path)))
        if baseline is None:
            self.tried.unfit = ["they end the process"]
            return True
        self.tried.unfit = [items[number].nodeid for number in baseline.failed]
        self.tried.took_s = sum(baseline.took_s)
        self.tried.each_s = {
            item.nodeid: baseline.took_s[number]
            for number, item in enumerate(items)
            if number not in baseline.failed
        }
        functions = _functions_of(str(self._path))
        gc.freeze()
        runs = []
        reached = []
        for edit in self._edits:
            numbers = baseline.reaching(edit)
            if numbers:
                reached.append(edit)
                runs.append(self._run(edit, [items[number] for number in numbers], functions))
            elif self._runs_at_import(edit):
                self.tried.verdicts[edit.id] = None
            else:
                self.tried.verdicts[edit.id] = Verdict.NOT_REACHED
        codes = _each(runs, self._jobs, LIMIT_S + 2 * self.tried.took_s)
        for edit, code in zip(reached, codes, strict=True):
            again = code == _REIMPORT or (code == 0 and self._runs_at_import(edit))
            self.tried.verdicts[edit.id] = None if again else _verdict(code)
        return True

    def _runs_at_import(self, edit: Edit) -> bool:
        return any(line in self._import_lines for line in range(edit.line, edit.end_line + 1))

    def _run(
        self, edit: Edit, items: Sequence[pytest.Item], functions: _Functions
    ) -> Callable[[], int]:
        def run() -> int:
            edit.apply()
            new = compile(self._tree, str(self._path), "exec")
            if not _replace_codes(new, functions):
                return _REIMPORT
            return 0 if _pass(items) else 1

        return run


@dataclass(slots=True)
class _Baseline:
    """What each test took, which lines of the module it ran, and which of them failed."""

    took_s: list[float]
    lines: list[set[int]]
    failed: list[int]

    def reaching(self, edit: Edit) -> list[int]:
        """The tests that run a line of ``edit``, quickest first."""
        wanted = range(edit.line, edit.end_line + 1)
        found = [
            number
            for number, lines in enumerate(self.lines)
            if number not in self.failed and any(line in lines for line in wanted)
        ]
        return sorted(found, key=lambda number: self.took_s[number])


def _baseline(items: Sequence[pytest.Item], path: str) -> _Baseline:
    found = _Baseline([], [], [])
    lines: set[int] = set()

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        return trace_lines if frame.f_code.co_filename == path else None

    def trace_lines(frame: FrameType, event: str, arg: Any) -> Any:
        lines.add(frame.f_lineno)
        return trace_lines

    for number, item in enumerate(items):
        lines.clear()
        began_s = time.process_time()
        following = items[number + 1] if number + 1 < len(items) else None
        threading.settrace(trace)
        sys.settrace(trace)
        reports = runtestprotocol(item, log=False, nextitem=following)
        sys.settrace(None)
        threading.settrace(None)
        if any(report.failed for report in reports):
            found.failed.append(number)
        found.took_s.append(time.process_time() - began_s)
        found.lines.append(set(lines))
    return found


def _pass(items: Sequence[pytest.Item]) -> bool:
    for number, item in enumerate(items):
        following = items[number + 1] if number + 1 < len(items) else None
        reports = runtestprotocol(item, log=False, nextitem=following)
        if any(report.failed for report in reports):
            return False
    return True


_Functions = Mapping[tuple[int, str], Sequence[FunctionType]]


def _functions_of(path: str) -> _Functions:
    """The functions that were made from the file at ``path``, by their first line and name."""
    found: dict[tuple[int, str], list[FunctionType]] = defaultdict(list)
    for each in gc.get_objects():
        if isinstance(each, FunctionType) and each.__code__.co_filename == path:
            found[each.__code__.co_firstlineno, each.__code__.co_name].append(each)
    return found


def _replace_codes(module: CodeType, functions: _Functions) -> bool:
    """Whether the functions could be given their code in ``module``."""
    replaced = 0
    for code in _codes_in(module):
        for function in functions.get((code.co_firstlineno, code.co_name), ()):
            if function.__code__ != code:
                try:
                    function.__code__ = code
                except ValueError:  # it uses other variables of the function around it
                    return False
                replaced += 1
    return replaced > 0


def _codes_in(code: CodeType) -> Iterator[CodeType]:
    for each in code.co_consts:
        if isinstance(each, CodeType):
            yield each
            yield from _codes_in(each)


# -- before anything is imported -------------------------------------------------------------------


def _imported_anew(
    module: str,
    path: Path,
    tree: ast.Module,
    edit: Edit,
    tests: Sequence[str],
    each_s: Mapping[str, float],
) -> Callable[[], int]:
    def run() -> int:
        edit.apply()
        sys.meta_path.insert(0, _Finder(module, path, compile(tree, str(path), "exec")))
        return int(pytest.main([*_OPTIONS, *tests], plugins=[_QuickestFirst(each_s)]))

    return run


class _QuickestFirst:
    """Runs the tests that take least time first, and leaves out those that fail anyway."""

    def __init__(self, each_s: Mapping[str, float]) -> None:
        self._each_s = each_s

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        known = [item for item in items if item.nodeid in self._each_s]
        items[:] = sorted(known, key=lambda item: self._each_s[item.nodeid])


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the edited module in place of the real one."""

    def __init__(self, module: str, path: Path, code: CodeType) -> None:
        self._module = module
        self._path = path
        self._code = code

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self._module:
            return None
        loader = _Loader(fullname, str(self._path))
        loader.edited = self._code
        return importlib.machinery.ModuleSpec(fullname, loader, origin=str(self._path))


class _Loader(importlib.machinery.SourceFileLoader):
    edited: CodeType

    def get_code(self, fullname: str) -> CodeType:
        return self.edited


# -- processes -------------------------------------------------------------------------------------


def _in_child(work: Callable[[], Any]) -> Any:
    """What ``work`` returns in a child of this process; None if the child fails."""
    readable, writable = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(readable)
            _be_quiet()
            with os.fdopen(writable, "wb") as pipe:
                pickle.dump(work(), pipe)
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writable)
    with os.fdopen(readable, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return pickle.loads(said) if said else None


def _each(runs: Sequence[Callable[[], int]], jobs: int, limit_s: float) -> list[int | None]:
    """The exit code of each of ``runs``, in a child of its own that has ``limit_s`` of the
    processor's time; None: it hung.
    """
    codes: list[int | None] = [None] * len(runs)
    waiting = list(enumerate(runs))[::-1]
    running: dict[int, _Running] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            number, run = waiting.pop()
            running[_forked(run, limit_s)] = _Running(number)
        for pid, one in list(running.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[one.number] = os.waitstatus_to_exitcode(status)
                del running[pid]
            elif one.has_hung(pid):
                os.killpg(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                del running[pid]
        time.sleep(0.002)
    return codes


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


def _forked(run: Callable[[], int], limit_s: float) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        os.setpgid(0, 0)
        used_s = math.ceil(time.process_time() + limit_s)
        resource.setrlimit(resource.RLIMIT_CPU, (used_s, used_s + 5))
        _be_quiet()
        code = run()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _be_quiet() -> None:
    if os.environ.get("LEADERQ_MUTATION_LOUD"):
        return
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
