"""Both client libraries behind the consumer contract."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import closing
from typing import Any

import pytest
from consumer_contract import ConsumerContract, commit
from kafka.net.connection import KafkaConnection

from leaderq.base import clock
from leaderq.errors import KafkaFenced
from leaderq.kafka import Record
from leaderq.kafka.clients.confluent_connection import ConfluentConnection
from leaderq.kafka.clients.confluent_consumer import ConfluentConsumer, consumer_options
from leaderq.kafka.clients.confluent_producer import ConfluentProducer
from leaderq.kafka.clients.consumer import ConsumerSettings, KafkaAway
from leaderq.kafka.clients.kafka_python_consumer import KafkaPythonConsumer
from leaderq.kafka.clients.kafka_python_producer import KafkaPythonProducer
from leaderq.kafka.clients.producer import Message, ProducerSettings
from leaderq.kafka.topics import create_topics
from leaderq.testing import eventually


@pytest.fixture
def sent(monkeypatch):
    counts: Counter[str] = Counter()
    send = KafkaConnection.send_request

    def counted(connection: Any, request: Any, *more: Any, **words: Any) -> Any:
        counts[type(request).__name__.removesuffix("Request")] += 1
        return send(connection, request, *more, **words)

    monkeypatch.setattr(KafkaConnection, "send_request", counted)
    return counts


FIELDS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]] = [
    (None, b"", []),
    (b"", None, []),
    (b"", b"", [("empty", b""), ("", b"no name"), ("empty", b"again")]),
    (b"k", None, []),
    (None, b"v", [("\u00e9", b"\xff\x00")]),
]


def test_what_is_empty_or_missing_stays_so_whatever_client_sends_and_reads(
    kafka_broker, topic_name
):
    address, now_ms = kafka_broker.address, clock.now_ms()
    create_topics(address, {topic_name: 1})
    messages = [
        Message(topic_name, value, key, headers, 0, now_ms) for key, value, headers in FIELDS
    ]
    for make in (KafkaPythonProducer, ConfluentProducer):
        with closing(make(ProducerSettings(address))) as producer:
            producer.send_all(messages, 30.0)
    found: list[list[Record]] = []
    for read_by in (KafkaPythonConsumer, ConfluentConsumer):
        settings = ConsumerSettings(address, (topic_name,), topic_name, "m", membership=False)
        with closing(read_by(settings)) as consumer:
            consumer.open()
            rows = ConsumerContract.read(ConsumerContract.join(consumer), 2 * len(FIELDS))
            found.append([row for each in rows.values() for row in each])
    assert found[0] == found[1]
    assert [(row.key, row.value, list(row.headers)) for row in found[0]] == 2 * FIELDS


class RealConsumerContract(ConsumerContract):
    """With a fixture ``requests``: options of a consumer, and what counts its requests by kind."""

    def test_many_partitions_are_asked_about_in_few_requests(
        self, make_consumer, requests, kafka_broker, topic_name
    ):
        options, asked = requests
        create_topics(kafka_broker.address, {f"{topic_name}-many": 300})
        consumer = self.join(make_consumer(topics=(f"{topic_name}-many",), options=options))
        before = asked(consumer)  # it asks again until a topic just made is ready
        assert consumer.positions() == dict.fromkeys(consumer.assigned(), 0)
        commit(consumer, consumer.positions())
        assert consumer.committed(20.0) == consumer.end_offsets(20.0) == consumer.positions()
        counts = asked(consumer) - before
        kinds = ("OffsetFetch", "ListOffsets", "OffsetCommit")
        assert all(0 < counts[kind] < 30 for kind in kinds), counts


class TestKafkaPythonConsumer(RealConsumerContract):
    factory = KafkaPythonConsumer

    @pytest.fixture
    def requests(self, sent):
        return {}, lambda _consumer: Counter(sent)


class TestConfluentConsumer(RealConsumerContract):
    factory = ConfluentConsumer

    @pytest.fixture
    def requests(self, sent):
        """Those of librdkafka, which its statistics tell, and those of the scout."""
        told: list[dict[str, Any]] = []

        def asked(consumer: Any) -> Counter[str]:
            told.clear()
            # The first may have been made before.
            eventually(lambda: (consumer.poll(0.1, 1), len(told) >= 2)[1])
            counts = Counter(sent)
            for broker in told[-1]["brokers"].values():
                counts.update(broker["req"])
            return counts

        return {
            "statistics.interval.ms": 200,
            "stats_cb": lambda text: told.append(json.loads(text)),
        }, asked

    @pytest.mark.parametrize("partitions", [4, 1000, 4000, 10_000])
    def test_a_quiet_broker_is_not_kept_busy_by_the_names_of_many_partitions(self, partitions):
        settings = ConsumerSettings("kafka:9092", ("topic",), "group", "member")
        connection = ConfluentConnection(settings.address, settings.security)
        wait_ms = consumer_options(settings, connection, partitions)["fetch.wait.max.ms"]
        assert 50 <= wait_ms <= 500
        assert partitions * 1000 / wait_ms <= 20_000

    def test_a_fenced_member_is_told_by_its_heartbeat_for_ever(self, make_consumer):
        first = self.join(make_consumer())
        self.join(make_consumer())
        with pytest.raises(KafkaFenced):
            for _ in range(40):
                assert first.poll(0.5, 10) == {}
        for act in (
            lambda: first.poll(0.0, 10),
            lambda: first.attend(0.1),
            lambda: commit(first, dict.fromkeys(first.existing(), 0)),
        ):
            with pytest.raises(KafkaFenced):
                act()

    def test_no_commit_overtakes_the_one_before(self, make_consumer):
        consumer = self.join(make_consumer())
        held = consumer.assigned()
        first, second = dict.fromkeys(held, 7), dict.fromkeys(held, 3)
        under_way = consumer.commit(first, "")
        with pytest.raises(KafkaAway):
            consumer.commit(second, "")
        assert under_way.done(30.0)
        assert consumer.committed(20.0) == first
        commit(consumer, second)
