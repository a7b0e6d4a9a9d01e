"""A buffered producer on a real broker: confirmed is what is on the topic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from kafka_roles import partition_leader
from own_broker import own_broker  # noqa: F401  (in place of the session's: it is killed here)
from reading_topics import read_all

from leaderq.errors import ConfigurationError, MessageTooLarge, RequestGivenUp, RequestsLost
from leaderq.kafka.record import Record
from leaderq.kafka.sink import KafkaPlace, KafkaSink
from leaderq.kafka.topics import create_topics, produce
from leaderq.producing import BufferedProducer, Retry
from leaderq.testing import eventually

SOON = Retry(first_s=0.05, most_s=0.2)


def by_key(records: list[Record]) -> dict[bytes, list[bytes]]:
    found: dict[bytes, list[bytes]] = {}
    for record in records:
        found.setdefault(record.key, []).append(record.value)
    return found


@pytest.fixture(params=["kafka-python", "confluent"])
def client(request) -> str:
    name: str = request.param
    return name


def test_what_is_confirmed_is_on_the_topic_once_and_in_order(kafka_broker, topic, stored, client):
    with BufferedProducer(KafkaSink(kafka_broker.address, topic, client=client)) as producer:
        for number in range(5000):
            producer.send((b"key-%d" % (number % 10), b"%d" % number))
        assert producer.flush(60)
        assert producer.snapshot().balance.confirmed == 5000
    records = stored()
    assert len(records) == 5000
    assert by_key(records) == {
        b"key-%d" % key: [b"%d" % number for number in range(key, 5000, 10)] for key in range(10)
    }
    produce(kafka_broker.address, topic, [(b"key-%d" % key, b"by another") for key in range(10)])
    places = {(record.key, record.partition) for record in stored()}
    assert len(places) == 10, "each key is where other producers put it"


def test_what_is_no_record_or_too_large_is_refused_alone_and_the_order_stays(
    kafka_broker, topic, client
):
    small = f"{topic}-small"
    create_topics(kafka_broker.address, {small: 1}, configs={"max.message.bytes": "2000"})
    sink = KafkaSink(kafka_broker.address, small, max_message_bytes=9000, client=client)
    bad: dict[int, Any] = {10: (b"k", b"x" * 5000), 30: (b"k", b"x" * 9001), 50: 17}
    with (
        pytest.raises(RequestsLost, match="'refused by the sink': 3"),
        BufferedProducer(sink, batch_items=50, retry=SOON) as producer,
    ):
        futures = [producer.submit(bad.get(number, (b"k", b"%d" % number))) for number in range(90)]
        assert not producer.flush(60)
        causes = []
        for number, future in enumerate(futures):
            if number in bad:
                with pytest.raises(RequestGivenUp) as raised:
                    future.result(30)
                causes.append(type(raised.value.__cause__))
            else:
                future.result(30)
    assert causes == [MessageTooLarge, MessageTooLarge, ConfigurationError]
    values = [record.value for record in read_all(kafka_broker.address, small)]
    first_seen = list(dict.fromkeys(values))
    assert first_seen == [b"%d" % number for number in range(90) if number not in bad]


def test_a_broker_that_is_killed_and_comes_back_has_all_once_and_in_order(
    kafka_broker, topic, stored, tmp_path, client
):
    """An outage doubles nothing either: the client keeps its place in the sequence."""
    sink = KafkaSink(kafka_broker.address, topic, client=client)
    with BufferedProducer(sink, journal=tmp_path, max_items=500, sink_timeout_s=0.5) as producer:
        for number in range(8000):
            if number == 2000:
                kafka_broker.kill()
            producer.send((b"key-%d" % (number % 7), b"%d" % number))
        eventually(lambda: producer.snapshot().sink_error)
        assert producer.snapshot().memory_items <= 500
        kafka_broker.start()
        assert producer.flush(90), producer.snapshot()
        assert producer.snapshot().balance.confirmed == 8000
    assert by_key(stored()) == {
        b"key-%d" % key: [b"%d" % each for each in range(key, 8000, 7)] for key in range(7)
    }


KEYS = 30
EACH = 20


@pytest.fixture
def at_fault(kafka_cluster, topic_name) -> Iterator[Any]:
    """The broker of partition 0 of 3, each on one broker only; it runs again at the end."""
    create_topics(kafka_cluster.address, {topic_name: 3})
    broker = partition_leader(kafka_cluster, topic_name)
    yield broker
    if not broker.alive:
        broker.start()


def test_a_partition_whose_only_broker_is_away_holds_up_what_goes_there_and_nothing_else(
    kafka_cluster, topic_name, at_fault, client
):
    sink = KafkaSink(kafka_cluster.address, topic_name, client=client)
    with BufferedProducer(
        sink, key=lambda request: request[0], batch_items=50, sink_timeout_s=1.0
    ) as producer:
        first = {key: producer.submit((b"%d" % key, b"0")) for key in range(KEYS)}
        places: dict[int, KafkaPlace] = {key: future.result(60) for key, future in first.items()}
        stuck = [key for key, place in places.items() if place.partition == 0]
        assert 0 < len(stuck) < KEYS
        at_fault.kill()
        for number in range(1, EACH):
            for key in range(KEYS):
                producer.send((b"%d" % key, b"%d" % number))
        healthy = KEYS + (KEYS - len(stuck)) * (EACH - 1)
        eventually(lambda: producer.snapshot().balance.confirmed == healthy, timeout_s=60)
        assert producer.snapshot().balance.pending == len(stuck) * (EACH - 1)
        assert f"{topic_name}-0" in str(producer.snapshot().sink_error)
        at_fault.start()
        assert producer.flush(90), producer.snapshot()
    found: dict[bytes, list[int]] = {}
    for record in read_all(kafka_cluster.address, topic_name):
        found.setdefault(record.key, []).append(int(record.value))
    assert found == {b"%d" % key: list(range(EACH)) for key in range(KEYS)}
