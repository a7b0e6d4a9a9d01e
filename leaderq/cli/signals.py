"""Ctrl-C and SIGTERM: before there is anything to wind up, and in verbs that have items in hand.

Python raises ``KeyboardInterrupt`` anywhere, also in the middle of steps that must stay whole. In
:class:`Stopping` the first signal is only noted, and raised where the verb says that it may be:
while it reads, writes, or waits. A second one is raised at once.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StoppedEarly(KeyboardInterrupt):
    """Told to stop while still starting. Not an ``Exception``: a user's module must not swallow it
    while it is imported.
    """


def stop_early(_number: int, _frame: FrameType | None) -> None:
    """A signal handler for the time until the runner has its own."""
    raise StoppedEarly


class Stopping:
    """A context manager that handles signals this way. ``on_ask``: called at the first one."""

    def __init__(self) -> None:
        self.is_asked = False
        self.on_ask: Callable[[], object] = lambda: None
        self._is_safe = False
        self._former: list[Any] = []

    def __enter__(self) -> Stopping:
        self._former = [signal.signal(number, self._heard) for number in _SIGNALS]
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in zip(_SIGNALS, self._former, strict=True):
            signal.signal(number, handler)

    @contextmanager
    def safely(self) -> Iterator[None]:
        """In here the first signal raises ``KeyboardInterrupt`` too; at once, if it came before."""
        self._is_safe = True
        try:
            self.check()
            yield
        finally:
            self._is_safe = False

    def check(self) -> None:
        """Raise if a signal came."""
        if self.is_asked:
            raise KeyboardInterrupt

    def _heard(self, _number: int, _frame: FrameType | None) -> None:
        is_first, self.is_asked = not self.is_asked, True
        if self._is_safe or not is_first:
            raise KeyboardInterrupt
        self.on_ask()
