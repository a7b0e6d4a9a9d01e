"""kafka-python behind the consumer contract."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from consumer_contract import ConsumerContract
from kafka.consumer.subscription_state import SubscriptionState
from kafka.net.connection import KafkaConnection

from leaderq.kafka import ConsumerClient
from leaderq.kafka.clients.kafka_python_consumer import KafkaPythonConsumer
from leaderq.kafka.topics import create_topics


class TestKafkaPythonConsumer(ConsumerContract):
    """The contract, on kafka-python."""

    factory = KafkaPythonConsumer

    @pytest.fixture
    def requests(self, monkeypatch: pytest.MonkeyPatch) -> Any:
        counts: Counter[str] = Counter()
        send = KafkaConnection.send_request

        def counted(connection: Any, request: Any, *more: Any, **words: Any) -> Any:
            counts[type(request).__name__.removesuffix("Request")] += 1
            return send(connection, request, *more, **words)

        def asked(_consumer: ConsumerClient) -> Counter[str]:
            return Counter(counts)

        monkeypatch.setattr(KafkaConnection, "send_request", counted)
        return {}, asked

    def test_many_partitions_are_looked_over_as_a_whole_not_once_for_each(
        self, make_consumer, kafka_broker, topic_name, monkeypatch
    ):
        create_topics(kafka_broker.address, {f"{topic_name}-many": 300})
        consumer = make_consumer(topics=(f"{topic_name}-many",))
        looks: Counter[str] = Counter()

        def count(name: str) -> None:
            look = getattr(SubscriptionState, name)

            def counted(state: Any) -> Any:
                looks[name] += 1
                return look(state)

            monkeypatch.setattr(SubscriptionState, name, counted)

        for name in ("assigned_partitions", "missing_fetch_positions", "paused_partitions"):
            count(name)
        self.join(consumer)
        assert consumer.positions() == dict.fromkeys(consumer.assigned(), 0)
        assert looks["assigned_partitions"] > 0
        assert max(looks.values()) < 100, dict(looks)
