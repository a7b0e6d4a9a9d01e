"""Which broker of a cluster leads a partition."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from kafka import KafkaAdminClient

from leaderq.testing import eventually


def partition_leader(cluster: Any, topic: str) -> Any:
    """The member of ``cluster`` that leads partition 0, once there is one."""

    def found() -> Any:
        with closing(KafkaAdminClient(bootstrap_servers=cluster.address)) as admin:
            (told,) = admin.describe_topics([topic])
        (leader,) = (
            each["leader_id"] for each in told["partitions"] if each["partition_index"] == 0
        )
        return cluster.members[leader - 1] if leader > 0 else None

    return eventually(found, timeout_s=60, message=f"partition 0 of {topic} has a leader")
