"""A partition whose only broker is away holds up what goes there, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka_roles import partition_leader
from reading_topics import read_all

from leaderq.kafka.sink import KafkaPlace, KafkaSink
from leaderq.kafka.topics import create_topics
from leaderq.producing import BufferedProducer
from leaderq.testing import eventually

KEYS = 30
EACH = 20


@pytest.fixture
def topic(kafka_cluster, topic_name) -> str:
    """A topic of 3 partitions, each on one broker only."""
    create_topics(kafka_cluster.address, {topic_name: 3})
    return topic_name


@pytest.fixture
def at_fault(kafka_cluster, topic) -> Iterator[Any]:
    """The broker of partition 0, which runs again at the end."""
    broker = partition_leader(kafka_cluster, topic)
    yield broker
    if not broker.alive:
        broker.start()


@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_the_others_go_on_and_nothing_is_doubled_or_out_of_order(
    kafka_cluster, topic, at_fault, client
):
    sink = KafkaSink(kafka_cluster.address, topic, client=client)
    with BufferedProducer(
        sink, key=lambda request: request[0], batch_items=50, sink_timeout_s=1.0
    ) as producer:
        first = {key: producer.submit((b"%d" % key, b"0")) for key in range(KEYS)}
        places: dict[int, KafkaPlace] = {key: future.result(60) for key, future in first.items()}
        stuck = [key for key, place in places.items() if place.partition == 0]
        assert 0 < len(stuck) < KEYS
        at_fault.kill()
        for number in range(1, EACH):
            for key in range(KEYS):
                producer.send((b"%d" % key, b"%d" % number))
        healthy = KEYS + (KEYS - len(stuck)) * (EACH - 1)
        eventually(lambda: producer.snapshot().balance.confirmed == healthy, timeout_s=60)
        assert producer.snapshot().balance.pending == len(stuck) * (EACH - 1)
        assert f"{topic}-0" in str(producer.snapshot().sink_error)
        at_fault.start()
        assert producer.flush(90), producer.snapshot()
    found: dict[bytes, list[int]] = {}
    for record in read_all(kafka_cluster.address, topic):
        found.setdefault(record.key, []).append(int(record.value))
    assert found == {b"%d" % key: list(range(EACH)) for key in range(KEYS)}
