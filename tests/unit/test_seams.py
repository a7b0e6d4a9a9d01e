"""Time, threads, chance and who we are come from four modules, whose names can be replaced."""

from __future__ import annotations

import ast
import concurrent.futures
import os
import queue
import random
import socket
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

import leaderq
from leaderq import chance, clock, host
from leaderq.threads import PerThread, primitives
from leaderq.timeouts import Deadline

ROOT = Path(leaderq.__file__).parent
SEAMS = ("leaderq.clock", "leaderq.chance", "leaderq.host", "leaderq.threads.primitives")
MODULES = sorted(ROOT.rglob("*.py"))
FUTURES = {"primitives.Future"}
"""May be a base class: a simulation leaves the class, and replaces what it waits with."""


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in MODULES:
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def aliases(tree: ast.Module) -> set[str]:
    """The names by which a module knows the seams."""
    return {
        one.asname or one.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for one in node.names
        if f"{node.module}.{one.name}" in SEAMS
    }


def eager(node: ast.AST, *, in_function: bool = False) -> Iterator[ast.AST]:
    """What is evaluated once: on import, or as the default of a parameter."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
        yield from node.args.defaults
        yield from (one for one in node.args.kw_defaults if one is not None)
        body = node.body if isinstance(node.body, list) else [node.body]
        for one in body:
            yield from eager(one, in_function=True)
    elif isinstance(node, ast.AnnAssign) and not in_function:  # annotations are not evaluated
        if node.value is not None:
            yield from eager(node.value)
    else:
        if not in_function:
            yield node
        for one in ast.iter_child_nodes(node):
            yield from eager(one, in_function=in_function)


def test_nobody_imports_a_name_of_the_seams() -> None:
    by_name = [
        f"{where}:{node.lineno}"
        for where, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in SEAMS
    ]
    assert by_name == []


def test_nothing_of_the_seams_is_captured_on_import_or_as_a_default() -> None:
    captured = []
    for where, tree in trees():
        known = aliases(tree)
        for part in eager(tree):
            if (
                isinstance(part, ast.Attribute)
                and isinstance(part.value, ast.Name)
                and part.value.id in known
                and ast.unparse(part) not in FUTURES
            ):
                captured.append(f"{where}:{part.lineno} {ast.unparse(part)}")
    assert captured == []


def test_ordinarily_the_names_are_the_standard_librarys() -> None:
    assert clock.sleep is time.sleep
    assert clock.calendar_s is time.time
    assert clock.awake_s is time.monotonic
    assert host.pid is os.getpid
    assert host.name is socket.gethostname
    assert chance.random == random.random
    assert chance.uuid4 is uuid.uuid4
    homes = dict.fromkeys(dir(threading), threading)
    homes |= dict.fromkeys(dir(queue), queue)
    homes |= dict.fromkeys((*concurrent.futures.__all__, "InvalidStateError"), concurrent.futures)
    other = {"FutureTimeout": "TimeoutError", "wait_futures": "wait"}
    for name in sorted(
        set(primitives.__all__) - {"raise_in", "frame_of", "new_event_loop"}
    ):  # our own
        theirs = other.get(name, name)
        assert getattr(primitives, name) is getattr(homes[theirs], theirs), name


def test_a_replaced_clock_is_everybodys(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(clock, "now_s", lambda: now[0])
    deadline = Deadline(5)
    assert not deadline.is_over
    now[0] += 5
    assert deadline.is_over


def test_a_value_per_thread_is_made_once_for_each_thread() -> None:
    mine: PerThread[list[int]] = PerThread(list)
    mine.value.append(1)
    theirs: list[list[int]] = []
    thread = threading.Thread(target=lambda: theirs.append(mine.value))
    thread.start()
    thread.join()
    assert theirs == [[]]
    assert mine.value == [1]
