"""Multis that are applied exactly once; see :mod:`leaderq.writing.writer`."""

from __future__ import annotations

from leaderq.writing.writer import POLITE_WINDOW, SequencedWriter, await_outcomes

__all__ = ["POLITE_WINDOW", "SequencedWriter", "await_outcomes"]
