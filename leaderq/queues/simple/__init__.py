"""Curator's ``SimpleDistributedQueue``; see :mod:`leaderq.queues.simple.queue`."""

from __future__ import annotations

from leaderq.queues.simple.queue import SimpleDistributedQueue

__all__ = ["SimpleDistributedQueue"]
