"""The way of an item into a queue; see :mod:`leaderq.queues.putting.putter`."""

from __future__ import annotations

from leaderq.queues.putting.putter import Putter
from leaderq.queues.putting.telling import PutListener

__all__ = ["PutListener", "Putter"]
