"""What a career says that it has done to the world."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

_hear: Callable[[str], object] | None = None


def acted(what: str) -> None:
    """Tell the simulation that ``what`` was done to the world outside, such as an invoice that was
    sent. Call this right where it is done.

    In a life that :func:`~leaderq.testing.simulation.simulate` leads, nothing may be done twice,
    and nothing by a former leader. Anywhere else this does nothing, and costs nothing.
    """
    if _hear is not None:
        _hear(what)


@contextmanager
def heard_by(hear: Callable[[str], object]) -> Iterator[None]:
    """Within the block, call ``hear`` with each act."""
    global _hear
    _hear = hear
    try:
        yield
    finally:
        _hear = None
