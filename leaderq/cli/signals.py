"""Handles Ctrl-C and SIGTERM in a process that is still starting, and in verbs that have items in
hand.

Python raises ``KeyboardInterrupt`` anywhere, also in the middle of steps that must stay whole.
:class:`Stopping` only notes the first signal, and raises it where the verb allows that: while it
reads, writes, or waits. A second signal is raised at once.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StoppedEarly(KeyboardInterrupt):
    """The process was told to stop while it was still starting. It is not an ``Exception``, so a
    user's module that is being imported cannot swallow it.
    """


def stop_early(_number: int, _frame: FrameType | None) -> None:
    """A signal handler that raises ``StoppedEarly``, until the runner sets its own."""
    raise StoppedEarly


class Stopping:
    """A context manager that handles signals as this module says."""

    def __init__(self) -> None:
        self.is_asked = False
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
        """Within this block, the first signal raises ``KeyboardInterrupt``, too; if it came before
        the block, this raises at once.
        """
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
