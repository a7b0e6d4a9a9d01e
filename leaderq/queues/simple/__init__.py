"""Curator's ``SimpleDistributedQueue``; see :mod:`leaderq.queues.simple.simple_queue`."""

from __future__ import annotations

from leaderq.queues.simple.simple_queue import SimpleDistributedQueue

__all__ = ["SimpleDistributedQueue"]
