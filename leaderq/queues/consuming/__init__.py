"""Consuming a queue: which items wait (``pending``, ``listing``), whose they are and what becomes
of them (``items``, ``prefetch``, ``members``), who works on them (``consumption``), and one thread
that drives all this (:mod:`~leaderq.queues.consuming.engine`).
"""

from __future__ import annotations

from leaderq.queues.consuming.consumption import Consumption, Item
from leaderq.queues.consuming.members import ConsumerDeathWatcher

__all__ = ["ConsumerDeathWatcher", "Consumption", "Item"]
