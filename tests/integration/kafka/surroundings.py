"""What a contract's tests do to Kafka beside the client that they are about: its topics, other
producers and readers. A simulated Kafka has surroundings of its own, with the same methods.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.structs import ConsumerGroupMetadata
from reading_topics import read_all

from leaderq.kafka import Partition
from leaderq.kafka.topics import committed, create_topics, end_offsets, existing_topics
from leaderq.testing import eventually


def _administrated(address: str, act: Callable[[KafkaAdminClient], Any]) -> Any:
    with closing(KafkaAdminClient(bootstrap_servers=address)) as admin:
        return act(admin)


def delete_topic(address: str, topic: str) -> None:
    _administrated(address, lambda admin: admin.delete_topics([topic]))
    eventually(lambda: topic not in existing_topics(address), message="the topic is gone")


class OthersTransaction:
    def __init__(self, producer: KafkaProducer) -> None:
        self._producer = producer
        producer.init_transactions()
        producer.begin_transaction()

    def send(self, where: Partition, value: bytes) -> None:
        """Return when the broker has it."""
        self._producer.send(where.topic, value, partition=where.number).get(timeout=30)

    def send_offset(self, where: Partition, offset: int, *, group: str) -> None:
        offsets = {TopicPartition(*where): OffsetAndMetadata(offset, "", -1)}
        self._producer.send_offsets_to_transaction(offsets, ConsumerGroupMetadata(group))

    def abort(self) -> None:
        self._producer.abort_transaction()

    def commit(self) -> None:
        self._producer.commit_transaction()


class RealKafka:
    create_topics = staticmethod(create_topics)
    delete_topic = staticmethod(delete_topic)
    committed = staticmethod(committed)
    end_offsets = staticmethod(end_offsets)
    """The last stable offsets."""

    @staticmethod
    def add_partitions(address: str, topic: str, count: int) -> None:
        _administrated(address, lambda admin: admin.create_partitions({topic: count}))

    @staticmethod
    @contextmanager
    def transaction(address: str, name: str) -> Iterator[OthersTransaction]:
        with closing(KafkaProducer(bootstrap_servers=address, transactional_id=name)) as producer:
            yield OthersTransaction(producer)

    @staticmethod
    def plain_committed(address: str, group: str, where: Partition) -> int | None:
        """What a consumer reads that does not ask for stable offsets."""
        with closing(KafkaConsumer(bootstrap_servers=address, group_id=group)) as plain:
            return plain.committed(TopicPartition(*where))

    @staticmethod
    def log_ends(address: str, topic: str) -> dict[int, int]:
        """Where the logs end, behind what is in open transactions."""
        where = [TopicPartition(topic, number) for number in end_offsets(address, topic)]
        with closing(KafkaConsumer(bootstrap_servers=address)) as plain:
            ends = plain.end_offsets(where)
        return {each.partition: end for each, end in ends.items()}

    @staticmethod
    def read(address: str, topic: str) -> list[bytes]:
        """The values that a careful reader is given, until the end of what is stable."""
        return [one.value for one in read_all(address, topic, isolation="read_committed")]
