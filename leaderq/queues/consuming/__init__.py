"""Consuming a queue: which items wait, whose they are, who works on them, and what becomes of them.

* :mod:`~leaderq.queues.consuming.pending` (pure): the names that may be claimed now, in order;
* :mod:`~leaderq.queues.consuming.listing`: keeps those names current;
* :mod:`~leaderq.queues.consuming.claims`: makes items ours, many at a time;
* :mod:`~leaderq.queues.consuming.prefetch`: what is ours and not begun; how far to claim ahead;
* :mod:`~leaderq.queues.consuming.workers`: runs the user's code;
* :mod:`~leaderq.queues.consuming.settling`: acknowledges, requeues, buries;
* :mod:`~leaderq.queues.consuming.engine`: one thread that drives all this;
* :mod:`~leaderq.queues.consuming.consumption`: what a queue class holds of it, and what users take;
* :mod:`~leaderq.queues.consuming.members`: the other consumers, and Java's when one of ours has died;
* :mod:`~leaderq.queues.consuming.deaths`: who died over what.
"""

from __future__ import annotations

from leaderq.queues.consuming.consumption import Consumption, Item
from leaderq.queues.consuming.members import ConsumerDeathWatcher

__all__ = ["ConsumerDeathWatcher", "Consumption", "Item"]
