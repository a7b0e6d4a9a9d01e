"""The way of an item into a queue; see :mod:`leaderq.queues.putting.putter`."""

from __future__ import annotations

from leaderq.queues.putting.puts import PutListener
from leaderq.queues.putting.putter import Putter

__all__ = ["PutListener", "Putter"]
