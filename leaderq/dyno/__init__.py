"""Messages that are acknowledged, delayed, prioritised and sharded. See :class:`DynoQueue`."""

from leaderq.dyno.async_queue import AsyncDelivery, AsyncDynoQueue
from leaderq.dyno.bodies import BodyStore, FileBodies, MissingBody
from leaderq.dyno.dead_letters import DynoDeadLetters
from leaderq.dyno.delivery import Delivery, Receipt, StaleLease
from leaderq.dyno.ids import Duplicate, OnConflict, Pushed
from leaderq.dyno.message import DynoMessage as Message
from leaderq.dyno.message import Unique
from leaderq.dyno.nodes import Leftover, ShardFigures
from leaderq.dyno.queue import DynoQueue
from leaderq.dyno.shards import QueueSettings, ShardingStrategy, by_id, by_key, round_robin
from leaderq.dyno.transitions import DeadMessage
from leaderq.dyno.worker import Kill, Postpone, Worker

__all__ = [
    "AsyncDelivery",
    "AsyncDynoQueue",
    "BodyStore",
    "DeadMessage",
    "Delivery",
    "Duplicate",
    "DynoDeadLetters",
    "DynoQueue",
    "FileBodies",
    "Kill",
    "Leftover",
    "Message",
    "MissingBody",
    "OnConflict",
    "Postpone",
    "Pushed",
    "QueueSettings",
    "Receipt",
    "ShardFigures",
    "ShardingStrategy",
    "StaleLease",
    "Unique",
    "Worker",
    "by_id",
    "by_key",
    "round_robin",
]
