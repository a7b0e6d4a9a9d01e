"""What librdkafka's errors mean to a term."""

from __future__ import annotations

import confluent_kafka
import pytest

from leaderq.kafka.clients.confluent_connection import translated
from leaderq.kafka.clients.consumer import KafkaAway

CODES = {confluent_kafka.KafkaError(code).name(): code for code in range(-200, -100)}


@pytest.mark.parametrize("name", ["_TRANSPORT", "_ALL_BROKERS_DOWN", "_DESTROY_BROKER"])
def test_a_broker_that_goes_passes_by_itself(name: str) -> None:
    assert isinstance(
        translated(confluent_kafka.KafkaError(CODES[name]), "committing", "kafka:9092"), KafkaAway
    )
