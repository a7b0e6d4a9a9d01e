"""Consuming a queue: which items wait (``pending``, ``listing``), whose they are (``claims``,
``prefetch``, ``members``), who works on them (``workers``), what becomes of them (``settling``),
and one thread that drives all this (:mod:`~leaderq.queues.consuming.engine`).
"""

from __future__ import annotations

from leaderq.queues.consuming.consumption import Consumption, Item
from leaderq.queues.consuming.members import ConsumerDeathWatcher

__all__ = ["ConsumerDeathWatcher", "Consumption", "Item"]
