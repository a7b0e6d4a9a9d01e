"""ZooKeeper queues on Curator's znodes: the same names and bytes, so that Java processes may share
them.

Begin with :class:`DistributedQueue`. What differs from Curator: a write whose answer is lost is
neither lost nor doubled, requests carry many items, a crash is noticed at once, failed items are
retried with a back-off and set aside in the end.
"""

from __future__ import annotations

from leaderq.engine.serializers import BYTES, JSON, TEXT, QueueSerializer
from leaderq.queues.async_queue import AsyncItem, AsyncQueue
from leaderq.queues.consumers import BlockingQueueConsumer, ErrorMode, QueueConsumer
from leaderq.queues.consuming import Item
from leaderq.queues.putting import PutListener
from leaderq.queues.recipes import (
    DistributedDelayQueue,
    DistributedIdQueue,
    DistributedPriorityQueue,
    DistributedQueue,
    QueueBuilder,
    QueueRecipe,
)
from leaderq.queues.sharding import QueueAllocator, QueueSharder, QueueSharderPolicies
from leaderq.queues.simple_queue import SimpleDistributedQueue
from leaderq.threads import Retry

__all__ = [
    "BYTES",
    "JSON",
    "TEXT",
    "AsyncItem",
    "AsyncQueue",
    "BlockingQueueConsumer",
    "DistributedDelayQueue",
    "DistributedIdQueue",
    "DistributedPriorityQueue",
    "DistributedQueue",
    "ErrorMode",
    "Item",
    "PutListener",
    "QueueAllocator",
    "QueueBuilder",
    "QueueConsumer",
    "QueueRecipe",
    "QueueSerializer",
    "QueueSharder",
    "QueueSharderPolicies",
    "Retry",
    "SimpleDistributedQueue",
]
