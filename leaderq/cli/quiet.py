"""Logging for verbs that only ask something: their errors are told by the command line itself."""

from __future__ import annotations

from leaderq.observability.logging import configure


def quiet() -> None:
    """Log errors only."""
    configure("text", "error")
