"""One value for each thread, in objects that live as long as the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from leaderq.threads import primitives

T = TypeVar("T")


class PerThread(Generic[T]):
    """``value`` is the calling thread's own, made by ``make`` when that thread first asks.

    For modules, which are imported once and serve both real and simulated threads: a
    ``primitives.local`` made at import would serve only one of the two kinds.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._locals: dict[type[Any], Any] = {}
        """For each kind of ``local`` that was in force, the one made of it."""

    @property
    def value(self) -> T:
        """The value of the calling thread. ``make()`` makes it when the thread first asks."""
        kind = primitives.local
        if (mine := self._locals.get(kind)) is None:
            mine = self._locals.setdefault(kind, kind())
        try:
            value: T = mine.value
        except AttributeError:
            value = mine.value = self._make()
        return value
