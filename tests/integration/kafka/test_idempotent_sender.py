"""Sending apart from any transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from own_broker import own_broker  # noqa: F401  (the fixture kafka_broker)
from producer_contract import Output

from leaderq.kafka.clients.consumer import KafkaAway
from leaderq.kafka.clients.kafka_python_producer import IdempotentSender
from leaderq.kafka.clients.producer import Message, ProducerSettings
from leaderq.testing import eventually


@pytest.fixture
def sender(kafka_broker: Any) -> Iterator[IdempotentSender]:
    """To the broker of the session."""
    made = IdempotentSender(ProducerSettings(kafka_broker.address))
    yield made
    made.close()


@pytest.fixture
def output(kafka_broker: Any, topic_name: str) -> Output:
    """A topic to send to."""
    return Output(kafka_broker.address, topic_name)


def test_a_broker_that_goes_away_is_told_and_comes_back(
    sender: IdempotentSender, output: Output, kafka_broker: Any
) -> None:
    sender.send([Message(output.topic, b"before")], 15.0)
    kafka_broker.kill()
    with pytest.raises(KafkaAway):
        sender.send([Message(output.topic, b"meanwhile")], 1.0)
    kafka_broker.start()
    eventually(lambda: sender.send([Message(output.topic, b"after")], 15.0) == 1, timeout_s=60)
    output.shows([b"before", b"after"])
