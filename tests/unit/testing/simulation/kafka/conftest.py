"""A simulated broker in place of a real one, for the contracts that real clients pass."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[4] / "integration" / "kafka"))

from simulated_surroundings import BROKERS, SimulatedBroker, SimulatedSurroundings

from leaderq.kafka.clients.producer import Message, ProducerSettings
from leaderq.testing.simulation.kafka import cluster, network, producer


@pytest.fixture
def kafka_broker(topic_name: str) -> Iterator[SimulatedBroker]:
    settings = cluster.ClusterSettings(initial_rebalance_delay_s=0.0)
    kafka = network.SimulatedKafka(settings, lock=threading.Lock(), address=f"{topic_name}:9092")
    BROKERS[kafka.address] = kafka
    yield SimulatedBroker(kafka)
    del BROKERS[kafka.address]


@pytest.fixture
def four_partitions(kafka_broker: SimulatedBroker, topic_name: str) -> str:
    SimulatedSurroundings.create_topics(kafka_broker.address, {topic_name: 4})
    return topic_name


@pytest.fixture
def feed(kafka_broker: SimulatedBroker, four_partitions: str) -> Callable[[int, int], list[bytes]]:
    def put(first: int, last: int) -> list[bytes]:
        values = [b"%d" % n for n in range(first, last)]
        keys = (b"k%d" % (int(value) % 16) for value in values)
        headers = ([("n", value)] for value in values)
        messages = map(Message, [four_partitions] * len(values), values, keys, headers)
        settings = ProducerSettings(kafka_broker.address)
        producer.SimulatedProducer(kafka_broker.kafka, settings).send_all(messages, 10.0)
        return values

    return put
