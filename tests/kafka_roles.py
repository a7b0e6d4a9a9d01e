"""Which broker of a cluster leads a partition, or coordinates a group or a producer's
transactions.
"""

from __future__ import annotations

from typing import Any

from kafka import KafkaAdminClient

from leaderq.testing import eventually


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
