"""What an operator does with a queue: look (depth, kind, items, dead letters) and act (purge,
requeue, drop, pause, drain).

Works on the znodes of any recipe, Java's as well, through a :class:`~leaderq.zookeeper.Session`;
needs neither a queue object nor a consumer. The znodes are authoritative and nothing is cached.
Begin with :class:`QueueAdmin`. What happens on each failure:

* **connection lost**: reads are repeated; so are writes, because each deletes the znode that it is
  about and cannot be applied twice. After ``patience_s`` without an answer
  :class:`~leaderq.errors.ConnectionLost` is raised;
* **killed midway**: what was done is done, whole; the same call goes on from there;
* **somebody else took an item meanwhile**: it is counted as gone, and is not an error;
* **corrupt items**: are shown as such, moved unchanged, and never stop a look at the others.
"""

from __future__ import annotations

from leaderq.queues.admin.browsing import Browsed
from leaderq.queues.admin.bulk import Purged
from leaderq.queues.admin.contents import QueueContents, contents_of, queues_below
from leaderq.queues.admin.dead_letters import DeadItem, DeadLetters, Moved
from leaderq.queues.admin.draining import QueueDrain
from leaderq.queues.admin.queue_admin import Overview, QueueAdmin

__all__ = [
    "Browsed",
    "DeadItem",
    "DeadLetters",
    "Moved",
    "Overview",
    "Purged",
    "QueueAdmin",
    "QueueContents",
    "QueueDrain",
    "contents_of",
    "queues_below",
]
