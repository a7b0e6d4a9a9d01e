"""What an operator does with a queue: look (depth, kind, items, dead letters) and act (purge,
requeue, drop, pause, drain). Begin with :class:`QueueAdmin`.

Works on the znodes of any recipe, Java's as well; the znodes are authoritative and nothing is
cached. What happens on each failure: **connection lost**: reads are repeated, and so are writes:
each write deletes the znode that it is about, so it cannot be applied twice. After ``PATIENCE_S``
seconds without an answer, :class:`~leaderq.errors.ConnectionLost` is raised; **killed midway**:
each item was changed wholly or not at all, and the same call continues from there; **somebody else
took an item meanwhile**: the item is counted as gone; **corrupt items**: they are shown as corrupt,
moved unchanged, and do not hide other items.
"""

from __future__ import annotations

from leaderq.engine.dead_letters import Moved
from leaderq.queues.admin.contents import Browsed, QueueContents, contents_of, queues_below
from leaderq.queues.admin.draining import QueueDrain
from leaderq.queues.admin.queue_admin import (
    DeadItem,
    ItemLetters,
    Overview,
    Purged,
    QueueAdmin,
)

__all__ = [
    "Browsed",
    "DeadItem",
    "ItemLetters",
    "Moved",
    "Overview",
    "Purged",
    "QueueAdmin",
    "QueueContents",
    "QueueDrain",
    "contents_of",
    "queues_below",
]
