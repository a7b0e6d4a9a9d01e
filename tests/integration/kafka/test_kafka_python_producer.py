"""The producer on kafka-python."""

from __future__ import annotations

from own_broker import own_broker  # noqa: F401  (the fixture kafka_broker)
from producer_contract import RealProducerContract

from leaderq.kafka.clients.kafka_python_consumer import KafkaPythonConsumer
from leaderq.kafka.clients.kafka_python_producer import KafkaPythonProducer


class TestKafkaPythonProducer(RealProducerContract):
    """The contract, with kafka-python."""

    factory = KafkaPythonProducer
    consumers = KafkaPythonConsumer
    fenced_causes = ("ProducerFencedError", "InvalidProducerEpochError")
