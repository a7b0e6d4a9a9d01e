"""What the contracts' tests do to Kafka beside the client under test, on a simulated cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import methodcaller

from surroundings import RealKafka

from leaderq.kafka import Partition
from leaderq.kafka.clients.consumer import ConsumerSettings
from leaderq.kafka.clients.producer import Message, ProducerSettings
from leaderq.testing.simulation.kafka.cluster import BrokerCluster
from leaderq.testing.simulation.kafka.consumer import SimulatedConsumer
from leaderq.testing.simulation.kafka.network import SimulatedKafka
from leaderq.testing.simulation.kafka.producer import SimulatedProducer

BROKERS: dict[str, SimulatedKafka] = {}
"""By the address that clients name."""


def kafka_at(address: str) -> SimulatedKafka:
    """The cluster there; a cluster of no brokers that answers nobody, if there is none."""
    return BROKERS.get(address) or next(iter(BROKERS.values()))


class SimulatedBroker:
    """A cluster of one broker, as the fixture ``kafka_broker`` offers it."""

    def __init__(self, kafka: SimulatedKafka) -> None:
        self.kafka = kafka
        self.address = kafka.address

    def freeze(self) -> None:
        self.kafka.acts(lambda cluster: cluster.freeze(0))

    def thaw(self) -> None:
        self.kafka.acts(lambda cluster: cluster.start(0))

    def kill(self) -> None:
        self.kafka.acts(lambda cluster: cluster.stop(0))

    start = thaw


class OthersTransaction:
    def __init__(self, producer: SimulatedProducer) -> None:
        self._producer = producer
        producer.open()
        assert producer.fence(10.0)
        producer.begin()

    def send(self, where: Partition, value: bytes) -> None:
        self._producer.produce(Message(where.topic, value, partition=where.number))
        self._producer._flush(float("inf"))

    def send_offset(self, where: Partition, offset: int, *, group: str) -> None:
        self._producer._send_offsets({where: offset}, group, float("inf"))

    def abort(self) -> None:
        self._producer.abort(10.0)

    def commit(self) -> None:
        self._producer._complete(float("inf"))


class SimulatedSurroundings(RealKafka):
    @staticmethod
    def create_topics(
        address: str, topics: Mapping[str, int], configs: Mapping[str, str] | None = None
    ) -> None:
        for topic, count in topics.items():
            kafka_at(address).acts(methodcaller("create_topic", topic, count, configs))

    @staticmethod
    def delete_topic(address: str, topic: str) -> None:
        kafka_at(address).acts(lambda cluster: cluster.delete_topic(topic))

    @staticmethod
    def add_partitions(address: str, topic: str, count: int) -> None:
        kafka_at(address).acts(lambda cluster: cluster.add_partitions(topic, count))

    @staticmethod
    @contextmanager
    def transaction(address: str, name: str) -> Iterator[OthersTransaction]:
        producer = SimulatedProducer(kafka_at(address), ProducerSettings(address, name))
        yield OthersTransaction(producer)
        producer.close()

    @staticmethod
    def plain_committed(address: str, group: str, where: Partition) -> int | None:
        def ask(cluster: BrokerCluster) -> int | None:
            stored = cluster.group(group).fetch([where], is_stable=False)
            return stored[where].offset if stored else None

        return kafka_at(address).acts(ask)

    @staticmethod
    def committed(address: str, group: str, topic: str) -> dict[int, int]:
        def ask(cluster: BrokerCluster) -> dict[int, int]:
            every = [Partition(topic, n) for n in range(cluster.topics()[topic].partitions)]
            stored = cluster.group(group).fetch(every, is_stable=False)
            return {where.number: each.offset for where, each in stored.items()}

        return kafka_at(address).acts(ask)

    @staticmethod
    def _logs(address: str, topic: str, bound: str) -> dict[int, int]:
        def ask(cluster: BrokerCluster) -> dict[int, int]:
            numbers = range(cluster.topics()[topic].partitions)
            return {n: getattr(cluster.log_of(Partition(topic, n)), bound) for n in numbers}

        return kafka_at(address).acts(ask)

    @classmethod
    def end_offsets(cls, address: str, topic: str) -> dict[int, int]:
        return cls._logs(address, topic, "stable_end")

    @classmethod
    def log_ends(cls, address: str, topic: str) -> dict[int, int]:
        return cls._logs(address, topic, "end")

    @staticmethod
    def read(address: str, topic: str) -> list[bytes]:
        settings = ConsumerSettings(address, (topic,), topic, "reader", membership=False)
        consumer = SimulatedConsumer(kafka_at(address), settings)
        consumer.open()
        assert consumer.join(lambda: None, 1.0)
        consumer.seek(consumer.start_offsets(1.0))
        end, values = consumer.end_offsets(1.0), []
        while any(at < end[where] for where, at in consumer.positions().items()):
            values += [row.value for rows in consumer.poll(0.1, 500).values() for row in rows]
        return values
