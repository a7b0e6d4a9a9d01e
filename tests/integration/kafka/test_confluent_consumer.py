"""confluent-kafka behind the consumer contract."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from consumer_contract import ConsumerContract, Make, commit

from leaderq.errors import KafkaFenced
from leaderq.testing import eventually

pytest.importorskip(
    "confluent_kafka", reason="the extra leaderq[confluent] is not installed", exc_type=ImportError
)

from leaderq.kafka.clients.confluent_connection import ConfluentConnection
from leaderq.kafka.clients.confluent_consumer import ConfluentConsumer, consumer_options
from leaderq.kafka.clients.consumer import ConsumerSettings


class TestConfluentConsumer(ConsumerContract):
    """The contract, on confluent-kafka."""

    factory = ConfluentConsumer

    @pytest.fixture
    def requests(self) -> Any:
        told: dict[str, dict[str, Any]] = {}

        def asked(consumer: Any) -> Counter[str]:
            told.clear()
            # The first of each client may have been made before.
            for _ in range(2):
                former = dict(told)
                eventually(
                    lambda former=former: (
                        consumer.poll(0.1, 1),
                        consumer._known._admin.poll(0.1),
                        len(told) == 2 and all(told[name] is not former.get(name) for name in told),
                    )[2],
                    timeout_s=30,
                    message="statistics of the consumer and of its admin client come",
                )
            counts: Counter[str] = Counter()
            for client in told.values():
                for broker in client["brokers"].values():
                    counts.update(broker["req"])
            return counts

        def tell(text: str) -> None:
            told.update({(found := json.loads(text))["name"]: found})

        return {"statistics.interval.ms": 200, "stats_cb": tell}, asked

    @pytest.mark.parametrize("partitions", [4, 1000, 4000, 10_000])
    def test_a_quiet_broker_is_not_kept_busy_by_the_names_of_many_partitions(
        self, partitions: int
    ) -> None:
        settings = ConsumerSettings("kafka:9092", ("topic",), "group", "member")
        connection = ConfluentConnection(settings.address, settings.security)
        wait_ms = consumer_options(settings, connection, partitions)["fetch.wait.max.ms"]
        assert 50 <= wait_ms <= 500
        assert partitions * 1000 / wait_ms <= 20_000

    def test_a_fenced_member_is_told_by_its_heartbeat_for_ever(self, make_consumer: Make) -> None:
        first = self.join(make_consumer())
        self.join(make_consumer())
        with pytest.raises(KafkaFenced):
            for _ in range(40):
                assert first.poll(0.5, 10) == {}
        for act in (
            lambda: first.poll(0.0, 10),
            lambda: first.attend(0.1),
            lambda: commit(first, {}),
        ):
            with pytest.raises(KafkaFenced):
                act()
