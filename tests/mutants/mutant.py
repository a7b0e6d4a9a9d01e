"""One small edit of the program that a test must notice."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


class Outdated(Exception):
    """A mutant does not fit the program or the tests any more."""


@dataclass(frozen=True, slots=True)
class Edit:
    """In ``file`` the text ``old``, which stands there once, becomes ``new``."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """What goes wrong when these edits are made, and the test (its id) that must fail then.

    ``may_hang``: that test notices by not ending within the time limit.
    """

    name: str
    edits: tuple[Edit, ...]
    killed_by: str
    may_hang: bool = False


def mutant(name: str, killed_by: str, *edits: Edit, may_hang: bool = False) -> Mutant:
    """A mutant of these edits."""
    return Mutant(name, edits, killed_by, may_hang)


def edited(tree: Path, one: Mutant) -> Mapping[Path, str]:
    """The new texts of the files in ``tree`` that ``one`` changes.

    Raises :class:`Outdated` when an old text does not stand exactly once in its file, or when the
    outcome is not Python.
    """
    texts: dict[Path, str] = {}
    for edit in one.edits:
        path = tree / edit.file
        text = texts.get(path) or path.read_text()
        count = text.count(edit.old)
        if count != 1:
            raise Outdated(f"{one.name}: {edit.file} holds {count} times, not once:\n{edit.old}")
        texts[path] = text.replace(edit.old, edit.new)
    for path, text in texts.items():
        try:
            ast.parse(text)
        except SyntaxError as exc:
            raise Outdated(f"{one.name}: {path.name} is not Python any more: {exc}") from exc
    return texts


def stands(tree: Path, test: str) -> bool:
    """Whether the test of this id is there, in its file or, as part of a contract, beside it; its
    parameters are not looked at.
    """
    path = tree / test.partition("::")[0]
    wanted = f"def {test.rpartition('::')[2].partition('[')[0]}("
    return path.exists() and any(
        wanted in file.read_text() for file in (path, *path.parent.glob("*_contract.py"))
    )
