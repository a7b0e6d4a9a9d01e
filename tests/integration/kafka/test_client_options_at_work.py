"""What a career passes to its client library reaches the brokers; topics by pattern come and go."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable
from typing import Any

import kafka
import pytest
from driving import Driver

from leaderq.errors import ConfigurationError, UnknownTopic
from leaderq.kafka import dead_letter
from leaderq.kafka.consuming import term_consumer
from leaderq.kafka.topics import create_topics, produce
from leaderq.testing import eventually

Drive = Callable[..., Driver]
NEEDS_CONFLUENT = pytest.mark.skipif(
    importlib.util.find_spec("confluent_kafka") is None, reason="leaderq[confluent] is not there"
)


@NEEDS_CONFLUENT
def test_a_name_that_librdkafka_does_not_know_is_refused_when_the_career_is_prepared(
    drive: Drive,
) -> None:
    with pytest.raises(ConfigurationError, match=r'No such configuration property: "no\.such"'):
        drive(client="confluent", client_options={"no.such": 1})


@pytest.mark.parametrize(
    ("client", "offsets"),
    [("kafka-python", "kafka"), pytest.param("confluent", "zookeeper", marks=NEEDS_CONFLUENT)],
)
def test_topics_that_match_are_read_also_those_made_later_and_one_that_is_deleted_ends_no_term(
    drive: Drive, kafka_broker, topic_name, client, offsets, monkeypatch
) -> None:
    monkeypatch.setattr(term_consumer, "INSPECT_S", 0.3)
    if client == "confluent":
        monkeypatch.setattr("leaderq.kafka.clients.confluent_consumer.ASK_EVERY_S", 0.3)
    address, first, later = kafka_broker.address, f"{topic_name}-1", f"{topic_name}-later"
    letters = f"{topic_name}-dead"
    create_topics(address, {first: 2, letters: 1, f"my-{topic_name}-1": 1})
    driver = drive(
        client=client,
        client_options={"metadata_max_age_ms": 300} if client == "kafka-python" else {},
        offsets=offsets,
        topics=re.compile(f"{topic_name}-.*"),
        on_error=dead_letter(letters),
        auto_offset_reset="latest",
    ).begin()
    for topic in (letters, f"my-{topic_name}-1", first):
        produce(address, topic, [(None, topic.encode())])
    driver.run_until(lambda: driver.career.values() == [first.encode()])
    create_topics(address, {later: 1})
    produce(address, later, [(None, b"at once")])
    driver.run_until(lambda: b"at once" in driver.career.values())
    admin: Any = kafka.KafkaAdminClient(bootstrap_servers=address)
    admin.delete_topics([first])
    eventually(lambda: first not in admin.list_topics(), timeout_s=30)
    admin.close()
    produce(address, later, [(None, b"after")])
    driver.run_until(lambda: b"after" in driver.career.values())
    assert driver.career.values() == [first.encode(), b"at once", b"after"]


def test_a_pattern_that_nothing_matches_is_refused(drive: Drive) -> None:
    with pytest.raises(UnknownTopic, match=r"no topic on Kafka .* matches 'no-such-\.\*'"):
        drive(topics=re.compile("no-such-.*"))
