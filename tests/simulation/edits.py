"""Lines of the program, changed while it runs: functions run other code until the block ends."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import leaderq

Place = tuple[int, tuple[str, ...], CodeType]


class Edit(NamedTuple):
    """``old``, which stands in ``file`` of the program once, in one function, becomes ``new``."""

    file: str
    old: str
    new: str


@contextmanager
def edited(edits: Iterable[Edit]) -> Iterator[None]:
    """Within the block, the program runs with these edits."""
    with ExitStack() as stack:
        for edit in edits:
            function, code = _changed(edit)
            stack.callback(setattr, function, "__code__", function.__code__)
            function.__code__ = code
        yield


def _changed(edit: Edit) -> tuple[FunctionType, CodeType]:
    text = (Path(leaderq.__file__).parent / edit.file).read_text()
    assert text.count(edit.old) == 1, f"not once in {edit.file}: {edit.old}"
    line = text[: text.index(edit.old)].count("\n") + 1
    before = [one for one in _functions(text) if one[0] <= line]
    _, path, code = _functions(text.replace(edit.old, edit.new))[len(before) - 1]
    module = importlib.import_module(f"leaderq.{edit.file[:-3].replace('/', '.')}")
    return _function(module, path), code


def _functions(text: str) -> list[Place]:
    """The functions of a module and of its classes: first line, path, code."""

    def below(code: CodeType, path: tuple[str, ...]) -> Iterator[Place]:
        for one in code.co_consts:
            if isinstance(one, CodeType):
                own = (*path, one.co_name)
                if one.co_flags & inspect.CO_OPTIMIZED:
                    yield one.co_firstlineno, own, one
                else:  # the body of a class
                    yield from below(one, own)

    return list(below(compile(text, "<edited>", "exec", dont_inherit=True), ()))


def _function(owner: Any, path: tuple[str, ...]) -> FunctionType:
    for name in path:
        owner = inspect.getattr_static(owner, name)
    for wrapped in ("fget", "func", "__func__"):
        owner = getattr(owner, wrapped, owner)
    found: FunctionType = inspect.unwrap(owner)
    return found
