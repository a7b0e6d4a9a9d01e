"""Draining Kafka as the one leader: the career, its records, the interfaces behind it."""

import warnings

with warnings.catch_warnings():
    # kafka-python reads its protocol files through a function deprecated in Python 3.11.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka as _kafka_python  # noqa: F401

from leaderq.kafka.async_career import AsyncKafkaLeaderCareer
from leaderq.kafka.career import KafkaLeaderCareer
from leaderq.kafka.clients.consumer import (
    BatchLost,
    CommitFuture,
    ConsumerClient,
    ConsumerSettings,
    EffectRefused,
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
from leaderq.kafka.stores.handle_call import require_handle_call, take_effect
from leaderq.kafka.stores.kafka_offsets import KafkaOffsets
from leaderq.kafka.stores.offset_store import (
    DeliveryPromise,
    DoneAtOnce,
    OffsetStore,
    StoreAway,
    StoreContext,
)

__all__ = [
    "AsyncKafkaLeaderCareer",
    "Batch",
    "BatchLost",
    "CommitFuture",
    "ConsumerClient",
    "ConsumerSettings",
    "DatabaseOffsets",
    "DeliveryPromise",
    "DependencyUnavailable",
    "DoneAtOnce",
    "EffectRefused",
    "KafkaAway",
    "KafkaLeaderCareer",
    "KafkaOffsets",
    "MembershipLost",
    "OffsetStore",
    "Partition",
    "PoisonRecord",
    "ProcessDied",
    "Record",
    "StoreAway",
    "StoreContext",
    "dead_letter",
    "require_handle_call",
    "retry",
    "skip",
    "take_effect",
]
