"""What a career says that it has done to the world."""

from __future__ import annotations

from collections.abc import Callable

_hear: Callable[[str], object] | None = None


def acted(what: str) -> None:
    """Say that ``what`` was done to the world outside: an invoice was sent, say. Call it right
    where it is done.

    In a life that :func:`~leaderq.testing.simulation.simulate` leads, nothing may be done twice,
    nor by a former leader. Anywhere else it does nothing, and costs nothing.
    """
    if _hear is not None:
        _hear(what)


def heard_by(hear: Callable[[str], object] | None) -> None:
    """Let ``hear`` be told from now on; ``None``: nobody."""
    global _hear
    _hear = hear
