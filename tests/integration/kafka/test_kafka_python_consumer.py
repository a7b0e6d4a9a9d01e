"""kafka-python behind the consumer contract."""

from __future__ import annotations

from consumer_contract import ConsumerContract

from leaderq.kafka.clients.kafka_python_consumer import KafkaPythonConsumer


class TestKafkaPythonConsumer(ConsumerContract):
    """The contract, on kafka-python."""

    factory = KafkaPythonConsumer
