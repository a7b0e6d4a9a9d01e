"""Draining Kafka as the one leader: the career, its records, and the narrow interfaces behind it."""

from leaderq.config.kafka_security import KafkaSecurity
from leaderq.kafka.career import KafkaLeaderCareer
from leaderq.kafka.drain import Drain, DrainSettings, KafkaAway, MembershipLost
from leaderq.kafka.offsets import KafkaOffsets, OffsetStore
from leaderq.kafka.record import Batch, Partition, Record

__all__ = [
    "Batch",
    "Drain",
    "DrainSettings",
    "KafkaAway",
    "KafkaLeaderCareer",
    "KafkaOffsets",
    "KafkaSecurity",
    "MembershipLost",
    "OffsetStore",
    "Partition",
    "Record",
]
