"""Producing without losing: a buffered producer, its journal, its sinks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from leaderq.producing.account import Balance, BufferState, LossReason, Lost, Settlement, Snapshot
from leaderq.producing.codec import PLAIN, Codec
from leaderq.producing.journal import EVERY_ITEM, NO_SYNC, Every, Interval, Journal
from leaderq.producing.options import Block, WhenFull
from leaderq.producing.producer import BufferedProducer
from leaderq.producing.sinks import ALL_CONFIRMED, BatchOutcome, CallableSink, QueueSink, Sink
from leaderq.threads import Retry

if TYPE_CHECKING:
    from leaderq.kafka.sink import KafkaPlace, KafkaSink

__all__ = [
    "ALL_CONFIRMED",
    "EVERY_ITEM",
    "NO_SYNC",
    "PLAIN",
    "Balance",
    "BatchOutcome",
    "Block",
    "BufferState",
    "BufferedProducer",
    "CallableSink",
    "Codec",
    "Every",
    "Interval",
    "Journal",
    "KafkaPlace",
    "KafkaSink",
    "LossReason",
    "Lost",
    "QueueSink",
    "Retry",
    "Settlement",
    "Sink",
    "Snapshot",
    "WhenFull",
]


def __getattr__(name: str) -> Any:
    """Return a name of the layer above, which is loaded at its first use: nothing here
    needs Kafka.
    """
    if name in ("KafkaSink", "KafkaPlace"):
        return getattr(import_module("leaderq.kafka.sink"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
