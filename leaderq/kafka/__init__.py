"""Draining Kafka as the one leader: the career, its records, the interfaces behind it."""

import warnings

with warnings.catch_warnings():
    # kafka-python reads its protocol files through a function deprecated in Python 3.11.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka as _kafka_python  # noqa: F401

from leaderq.kafka.career import KafkaLeaderCareer
from leaderq.kafka.clients.consumer import (
    BatchLost,
    CommitFuture,
    ConsumerClient,
    ConsumerSettings,
    KafkaAway,
    MembershipLost,
)
from leaderq.kafka.handling.on_error import (
    DependencyUnavailable,
    PoisonRecord,
    ProcessDied,
    dead_letter,
    retry,
    skip,
)
from leaderq.kafka.record import Batch, Partition, Record
from leaderq.kafka.stores.database_offsets import DatabaseOffsets
from leaderq.kafka.stores.offset_store import KafkaOffsets, OffsetStore

__all__ = [
    "Batch",
    "BatchLost",
    "CommitFuture",
    "ConsumerClient",
    "ConsumerSettings",
    "DatabaseOffsets",
    "DependencyUnavailable",
    "KafkaAway",
    "KafkaLeaderCareer",
    "KafkaOffsets",
    "MembershipLost",
    "OffsetStore",
    "Partition",
    "PoisonRecord",
    "ProcessDied",
    "Record",
    "dead_letter",
    "retry",
    "skip",
]
