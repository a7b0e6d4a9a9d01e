"""A cluster of three of which one leads who has not all that was acknowledged. That brokers fail in
turn and no term does: ``tests/simulation/drain.py``.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from driving import Forwarding, Recorder
from kafka import KafkaAdminClient
from kafka_roles import partition_leader

from leaderq.errors import OffsetOutOfRange
from leaderq.kafka import Partition
from leaderq.kafka.topics import create_topics, describe_topics, produce
from leaderq.testing import eventually


@pytest.fixture
def kafka_broker(kafka_cluster):
    """Three in the place of one."""
    return kafka_cluster


def test_a_log_that_was_cut_off_and_written_again_stops_each_leader_that_had_read_further(
    drive, kafka_cluster, topic_name
):
    address, topic = kafka_cluster.address, f"{topic_name}-cut"

    def values(first: int, end: int) -> list[tuple[None, bytes]]:
        return [(None, b"%d" % number) for number in range(first, end)]

    configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    create_topics(address, {topic: 1}, replication=2, configs=configs)
    create_topics(address, {f"{topic}-out": 1}, replication=3)
    leaders = []
    for client in ("kafka-python", "confluent"):
        for kind in (Recorder, Forwarding):  # each in a group of its own
            name = f"{topic_name}-{client}-{kind.offsets}"
            more = {"topics": topic, "group": name, "max_records": 50}
            leaders.append(drive(kind, {"career": name}, client=client, **more))
    leads = partition_leader(kafka_cluster, topic)
    with closing(KafkaAdminClient(bootstrap_servers=address)) as admin:
        (told,) = admin.describe_topics([topic])
    numbers = told["partitions"][0]["replica_nodes"]
    copies = [kafka_cluster.members[number - 1] for number in numbers]
    (follows,) = (member for member in copies if member is not leads)
    produce(address, topic, values(0, 100))
    follows.kill()
    eventually(lambda: describe_topics(address, [topic])[topic].in_sync == 1, timeout_s=60)
    produce(address, topic, values(100, 200))
    for leader in leaders:
        consumer = leader.career._assembly.consumer
        leader.begin().run_until(lambda of=consumer: of.loaded == {Partition(topic, 0): 200})
        leader.end()
    leads.kill()
    with ThreadPoolExecutor(1) as background:
        starting = background.submit(follows.start)  # until it knows all three
        eventually(lambda: not describe_topics(address, [topic])[topic].leaderless, timeout_s=60)
        leads.start()
        starting.result()
    produce(address, topic, values(1000, 1200))
    for leader in leaders:
        where = f"{leader.career.client} {leader.career.offsets}"
        print(where)  # shown if the next fails
        leader.begin()
        with pytest.raises(OffsetOutOfRange, match="cut off"):
            leader.run_until(lambda: False, within_s=20)
        assert len(set(leader.career.values())) == 200, where
