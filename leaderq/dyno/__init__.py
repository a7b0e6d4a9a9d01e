"""Messages that are acknowledged, delayed, prioritised and sharded. See :class:`DynoQueue`."""

from leaderq.dyno.delivery import Delivery, Receipt, StaleLease
from leaderq.dyno.message import Message
from leaderq.dyno.queue import DynoQueue
from leaderq.dyno.shards import FixedShards, ShardingStrategy, ShardSupplier, by_id, by_key, round_robin

__all__ = [
    "Delivery",
    "DynoQueue",
    "FixedShards",
    "Message",
    "Receipt",
    "ShardSupplier",
    "ShardingStrategy",
    "StaleLease",
    "by_id",
    "by_key",
    "round_robin",
]
