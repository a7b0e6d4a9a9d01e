"""Packages whose public names are loaded when first used, so that importing them costs nothing; and
what a package gets of those that are built on it, without importing them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exported(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], list[str]]:
    """Return the ``__getattr__`` and the ``__all__`` of ``package``.

    ``homes`` has, for each module of the package, the names that it defines, separated by spaces.
    For type checkers the package imports each as itself (``from x import A as A``) below
    ``if TYPE_CHECKING``; a test compares the two.
    """
    home_of = {name: home for home, names in homes.items() for name in names.split()}

    def load(name: str) -> Any:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{home_of[name]}"), name)

    return load, sorted(home_of)


_from_above: dict[str, Callable[[], Any]] = {}


def provide(name: str, load: Callable[[], Any]) -> None:
    """Let :func:`provided` return what ``load`` does; it imports, so whoever calls this is above
    what is imported.
    """
    _from_above[name] = load


def provided(name: str) -> Any:
    """What was provided as ``name``, loaded now."""
    return _from_above[name]()
