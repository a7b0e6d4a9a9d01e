"""A named edit, and the tests that must notice it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Control:
    """``name``: what goes wrong when ``old``, which stands in ``file`` once, becomes ``new``.

    ``promise``: what a docstring says instead. ``tests``: files or ids; one of them must fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    promise: str = ""
