"""Signals of a process that runs a career: the first one winds up, the second one leaves.

Handlers run on the main thread between two bytecodes of whatever it does, so they take no locks and start no long work.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol

_ASKING = (signal.SIGTERM, signal.SIGINT)


class Stoppable(Protocol):
    """What signals are turned into."""

    def stop(self) -> None:
        """Wind up and hand over."""

    def give_up(self) -> None:
        """Leave at once."""


@contextmanager
def handling(runner: Stoppable) -> Iterator[None]:
    """Within the block, SIGTERM and SIGINT reach ``runner``. Main thread only."""
    asked = False

    def handle(_number: int, _frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            runner.give_up()
            return
        asked = True
        runner.stop()

    before = {number: signal.signal(number, handle) for number in _ASKING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
