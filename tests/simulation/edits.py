"""Lines of the program, as they are and as they would be: tables of them, and the program that runs
with them. Functions run other code until the block ends.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

PACKAGE = Path(__file__).parents[2] / "leaderq"
Place = tuple[int, tuple[str, ...], CodeType]


class Edit(NamedTuple):
    """``old``, which stands in ``file`` of the program once, becomes ``new``."""

    file: str
    old: str
    new: str

    @property
    def module(self) -> str:
        return f"leaderq.{self.file[:-3].replace('/', '.')}"

    def texts(self) -> tuple[str, str]:
        """The file as it is, and as it would be."""
        text = (PACKAGE / self.file).read_text()
        assert text.count(self.old) == 1, f"not once in {self.file}: {self.old}"
        return text, text.replace(self.old, self.new)


def controls_of(table: str) -> Iterator[tuple[str, str, list[Edit]]]:
    """Of each control of a table what == says of it and its neighbours, its name, and its edits.

    Below a name stand the file, if it is not that of the control before, and the lines as they are
    and as they would be.
    """
    file = ""
    for part in table.split("\n== ")[1:]:
        what, *controls = re.split(r"\n(?=[^-+=\n])", part)
        for control in controls:
            name, text = control.rstrip().split("\n", 1)
            text, edits = f"\n{text}" if text[0] == "=" else f"\n= {file}\n{text}", list[Edit]()
            for edit in text.split("\n= ")[1:]:
                file, *lines = edit.splitlines()
                old, new = ("\n".join(one[1:] for one in lines if one[0] == sign) for sign in "-+")
                edits.append(Edit(file, old, new))
            yield what.strip(), name, edits


@contextmanager
def edited(edits: Iterable[Edit]) -> Iterator[None]:
    """Within the block, the program runs with these edits, each within one function."""
    with ExitStack() as stack:
        for edit in edits:
            function, code = _changed(edit)
            stack.callback(setattr, function, "__code__", function.__code__)
            function.__code__ = code
        yield


def _changed(edit: Edit) -> tuple[FunctionType, CodeType]:
    text, changed = edit.texts()
    line = text[: text.index(edit.old)].count("\n") + 1
    before = [one for one in _functions(text) if one[0] <= line]
    _, path, code = _functions(changed)[len(before) - 1]
    return _function(importlib.import_module(edit.module), path), code


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
