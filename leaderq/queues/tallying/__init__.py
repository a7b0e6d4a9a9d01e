"""Multis that are applied exactly once, in order, whatever happens to their answers; see :mod:`leaderq.queues.tallying.tally`."""

from __future__ import annotations

from leaderq.queues.tallying.tally import Tally

__all__ = ["Tally"]
