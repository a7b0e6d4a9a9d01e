"""Multis that are applied exactly once; see :mod:`leaderq.zookeeper.writing.writer`."""

from __future__ import annotations

from leaderq.zookeeper.writing.writer import SequencedWriter, await_outcomes

__all__ = ["SequencedWriter", "await_outcomes"]
