"""kafka-python behind the drain contract."""

from __future__ import annotations

from drain_contract import DrainContract

from leaderq.kafka.clients.kafka_python_consumer import KafkaPythonConsumer


class TestKafkaPythonDrain(DrainContract):
    """The contract, on kafka-python."""

    factory = KafkaPythonConsumer
