"""Multis that are applied exactly once, in order, whatever happens to their answers; see
:mod:`leaderq.queues.writing.writer`.
"""

from __future__ import annotations

from leaderq.queues.writing.writer import SequencedWriter, await_outcomes

__all__ = ["SequencedWriter", "await_outcomes"]
