"""Two ways to avoid imports: a package loads its public names when they are first used; and a lower
package gets a name of a higher one without importing it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exported(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], Any], list[str]]:
    """Return the ``__getattr__`` and the ``__all__`` of ``package``.

    ``homes`` maps each module of the package to the names that it defines, separated by spaces. For
    type checkers the package imports each name as itself (``from x import A as A``) below
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
    """Let :func:`provided` return what ``load()`` returns. ``load`` imports something, and only a
    module that stands above the imported one may call this.
    """
    _from_above[name] = load


def provided(name: str) -> Any:
    """Load and return what was provided as ``name``."""
    return _from_above[name]()
