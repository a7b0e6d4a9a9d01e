"""Consuming a queue: which items wait, whose they are, who works on them, and what becomes of them.

* :mod:`~leaderq.queues.consuming.waiting` (pure): the names that may be claimed now, in order;
* :mod:`~leaderq.queues.consuming.looking`: keeps those names current;
* :mod:`~leaderq.queues.consuming.claiming`: makes items ours, many at a time;
* :mod:`~leaderq.queues.consuming.ready`: what is ours and not begun; how far to claim ahead;
* :mod:`~leaderq.queues.consuming.working`: runs the user's code;
* :mod:`~leaderq.queues.consuming.settling`: acknowledges, requeues, buries;
* :mod:`~leaderq.queues.consuming.engine`: one thread that drives all this;
* :mod:`~leaderq.queues.consuming.consuming`: what a queue class holds of it;
* :mod:`~leaderq.queues.consuming.warden`: wakes Java consumers when a consumer of ours has died.
"""

from __future__ import annotations

from leaderq.queues.consuming.consuming import Consuming
from leaderq.queues.consuming.item import Item
from leaderq.queues.consuming.warden import Warden

__all__ = ["Consuming", "Item", "Warden"]
