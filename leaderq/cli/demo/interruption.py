"""Ctrl-C, SIGTERM and SIGHUP during the demo: the first one ends the story, none disturbs the clearing up."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Turns the first signal into a ``KeyboardInterrupt``; further ones, and all after :meth:`shield`, are ignored.

    Ignoring is safe, for what follows is bounded in time, and everything started ends with this process in any case.
    """

    def __init__(self) -> None:
        self._shielded = False
        self._holding = False
        self._pending = False

    def install(self) -> None:
        """Take the signals. Main thread only."""
        for number in _SIGNALS:
            signal.signal(number, self._handle)

    def shield(self) -> None:
        """From now on everything is being cleared up."""
        self._shielded = True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within the block an interruption waits for its end: what is being started there must become known first.

        Otherwise it could strike between the making of a process or a folder and the note that it was made.
        """
        self._holding = True
        try:
            yield
        finally:
            self._holding = False
        if self._pending:
            self._interrupt()

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self._holding:
            self._pending = True
        else:
            self._interrupt()

    def _interrupt(self) -> None:
        if not self._shielded:
            self._shielded = True
            raise KeyboardInterrupt
