"""The transactional producer on kafka-python."""

from __future__ import annotations

from typing import Any

from kafka import KafkaConsumer
from own_broker import own_broker  # noqa: F401  (the fixture kafka_broker)
from producer_contract import Member, ProducerContract

from leaderq.kafka.clients.consumer import ConsumerSettings
from leaderq.kafka.clients.kafka_python_connection import connected
from leaderq.kafka.clients.kafka_python_consumer import consumer_options
from leaderq.kafka.clients.kafka_python_producer import KafkaPythonProducer
from leaderq.testing import eventually


class KafkaPythonMember(Member):
    """On a ``KafkaConsumer``, whose own thread keeps the membership."""

    def __init__(self, address: str, topic: str) -> None:
        settings = ConsumerSettings(address=address, topics=(topic,), group=topic, member="leader")
        self.consumer = connected(
            KafkaConsumer, address, {**consumer_options(settings), "auto_offset_reset": "earliest"}
        )
        self.consumer.subscribe([topic])
        self.topic = topic
        self._await_membership()

    def _await_membership(self) -> None:
        def joined() -> bool:
            self._attend()
            return len(self.consumer.assignment()) == 4

        eventually(joined, timeout_s=30, message="the consumer is a member")

    def _attend(self) -> None:
        """As the consumer thread does: a join whose last answer comes between two polls is lost to
        kafka-python, and must be asked for again.
        """
        coordinator: Any = self.consumer._coordinator
        if coordinator.rejoining and not coordinator.need_rejoin():
            coordinator.request_rejoin()
        coordinator.poll(timeout_ms=5000)

    def metadata(self) -> Any:
        return self.consumer.group_metadata()

    def join_again(self) -> None:
        before = self.metadata().generation_id
        self.consumer._coordinator.request_rejoin()  # type: ignore[attr-defined]

        def joined() -> bool:
            self._attend()
            return bool(self.metadata().generation_id > before)

        eventually(joined, timeout_s=30, message="the group has another generation")

    def close(self) -> None:
        self.consumer.close(autocommit=False)


class TestKafkaPythonProducer(ProducerContract):
    """The contract, with kafka-python."""

    factory = KafkaPythonProducer
    member = KafkaPythonMember
    fenced_causes = ("ProducerFencedError", "InvalidProducerEpochError")
