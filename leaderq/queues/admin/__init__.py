"""What an operator does with a queue: look (depth, kind, items, dead letters) and act (purge,
requeue, drop, pause, drain). Begin with :class:`QueueAdmin`.

Works on the znodes of any recipe, Java's as well; the znodes are authoritative and nothing is
cached. What happens on each failure: **connection lost**: reads are repeated, and writes, each of
which deletes the znode that it is about and cannot be applied twice; after ``PATIENCE_S`` without
an answer :class:`~leaderq.errors.ConnectionLost` is raised; **killed midway**: what was done is
done, whole, and the same call goes on from there; **somebody else took an item meanwhile**: it is
counted as gone; **corrupt items**: are shown as such, moved unchanged, and never stop a look at the
others.
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
