"""Which broker of a cluster leads a partition, or coordinates a group or a producer's
transactions.
"""

from __future__ import annotations

from typing import Any

from kafka import KafkaAdminClient

from leaderq.testing import eventually
from leaderq.testing.kafka_server import SMALL_BROKER


def partition_leader(cluster: Any, topic: str, number: int = 0) -> Any:
    """The member of ``cluster`` that leads this partition, once there is one."""

    def found() -> Any:
        admin = KafkaAdminClient(bootstrap_servers=cluster.address)
        try:
            (told,) = admin.describe_topics([topic])
        finally:
            admin.close()
        (leader,) = (
            each["leader_id"] for each in told["partitions"] if each["partition_index"] == number
        )
        return cluster.members[leader - 1] if leader > 0 else None

    return eventually(found, timeout_s=60, message=f"partition {number} of {topic} has a leader")


def group_coordinator(cluster: Any, group: str) -> Any:
    """The member that keeps the group's offsets."""
    return partition_leader(
        cluster, "__consumer_offsets", _partition_of(group, "offsets.topic.num.partitions")
    )


def transaction_coordinator(cluster: Any, transactional_id: str) -> Any:
    """The member that keeps the producer's epoch and the state of its transaction."""
    number = _partition_of(transactional_id, "transaction.state.log.num.partitions")
    return partition_leader(cluster, "__transaction_state", number)


def _partition_of(name: str, setting: str) -> int:
    code = 0  # String.hashCode of Java, without its sign, as Kafka does it
    for byte in name.encode():
        code = (31 * code + byte) & 0xFFFFFFFF
    signed = code - (1 << 32) if code >> 31 else code
    return abs(signed) % int(SMALL_BROKER[setting])
