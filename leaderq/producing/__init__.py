"""Producing without losing: a buffered producer, its journal, its sinks."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from leaderq.producing.account import Balance, Reason
from leaderq.producing.codec import PLAIN, Codec
from leaderq.producing.entry import Lost
from leaderq.producing.frame import Packed, pack_frame, unpack_frame
from leaderq.producing.journal import EVERY_ITEM, NO_SYNC, Every, Interval, Journal
from leaderq.producing.patience import Breaker, Retry
from leaderq.producing.producer import BufferedProducer
from leaderq.producing.sinks import ALL_CONFIRMED, CallableSink, Outcome, QueueSink, Sink
from leaderq.producing.snapshot import Snapshot
from leaderq.producing.states import State
from leaderq.producing.when_full import Block, WhenFull
from leaderq.producing.working import SKIP

if TYPE_CHECKING:
    from leaderq.kafka.sink import KafkaSink

__all__ = [
    "ALL_CONFIRMED",
    "EVERY_ITEM",
    "NO_SYNC",
    "PLAIN",
    "SKIP",
    "Balance",
    "Block",
    "Breaker",
    "BufferedProducer",
    "CallableSink",
    "Codec",
    "Every",
    "Interval",
    "Journal",
    "KafkaSink",
    "Lost",
    "Outcome",
    "Packed",
    "QueueSink",
    "Reason",
    "Retry",
    "Sink",
    "Snapshot",
    "State",
    "WhenFull",
    "pack_frame",
    "unpack_frame",
]


def __getattr__(name: str) -> Any:
    """``KafkaSink``, from the layer above: loaded when it is asked for, so that nothing here needs Kafka."""
    if name == "KafkaSink":
        return import_module("leaderq.kafka.sink").KafkaSink
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
