"""One queue spread over several znodes, as Curator's ``QueueSharder``; see :mod:`leaderq.queues.sharding.sharder`."""

from __future__ import annotations

from leaderq.queues.sharding.allocator import QueueAllocator, ShardQueue
from leaderq.queues.sharding.policies import QueueSharderPolicies
from leaderq.queues.sharding.sharder import QueueSharder

__all__ = ["QueueAllocator", "QueueSharder", "QueueSharderPolicies", "ShardQueue"]
