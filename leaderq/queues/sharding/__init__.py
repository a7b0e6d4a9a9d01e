"""One queue spread over several znodes, as by Curator's ``QueueSharder``."""

from __future__ import annotations

from leaderq.queues.sharding.shard_plan import QueueSharderPolicies
from leaderq.queues.sharding.sharder import QueueAllocator, QueueSharder, ShardQueue

__all__ = ["QueueAllocator", "QueueSharder", "QueueSharderPolicies", "ShardQueue"]
