"""Messages that are acknowledged, delayed, prioritised and sharded. See :class:`DynoQueue`."""

from leaderq.dyno.async_queue import AsyncDelivery, AsyncDynoQueue
from leaderq.dyno.dead_letters import DynoDeadLetters
from leaderq.dyno.delivery import Delivery, Receipt, StaleLease
from leaderq.dyno.message import Message
from leaderq.dyno.queue import DynoQueue, ShardFigures
from leaderq.dyno.shards import FixedShards, ShardingStrategy, ShardSupplier, by_id, by_key, round_robin
from leaderq.dyno.transitions import DeadLetter
from leaderq.dyno.worker import Kill, Postpone, Worker

__all__ = [
    "AsyncDelivery",
    "AsyncDynoQueue",
    "DeadLetter",
    "Delivery",
    "DynoDeadLetters",
    "DynoQueue",
    "FixedShards",
    "Kill",
    "Message",
    "Postpone",
    "Receipt",
    "ShardFigures",
    "ShardSupplier",
    "ShardingStrategy",
    "StaleLease",
    "Worker",
    "by_id",
    "by_key",
    "round_robin",
]
