"""SIGTERM before there is a runner to wind up: nothing has begun, so the process leaves as asked."""

from __future__ import annotations

from types import FrameType


class StoppedEarly(KeyboardInterrupt):
    """Told to stop while still starting. Not an ``Exception``: a user's module must not swallow it while it is imported."""


def stop_early(_number: int, _frame: FrameType | None) -> None:
    """A signal handler for the time until the runner has its own."""
    raise StoppedEarly
