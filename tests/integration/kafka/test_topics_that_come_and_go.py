"""Topics that are deleted under the leader that reads them, or come later, on a real broker."""

from __future__ import annotations

import re

import pytest
from surroundings import delete_topic

from leaderq.errors import UnknownTopic
from leaderq.kafka import dead_letter
from leaderq.kafka.consuming import term_consumer
from leaderq.kafka.topics import create_topics, produce

SOON = {
    "kafka-python": {"client_options": {"metadata_max_age_ms": 300}},
    "confluent": {"client_options": {}},
}
"""What lets a client see soon which topics there are."""


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch):
    monkeypatch.setattr(term_consumer, "INSPECT_S", 0.3)
    monkeypatch.setattr(term_consumer, "CONFIRM_S", 0.1)
    monkeypatch.setattr("leaderq.kafka.clients.kafka_python_consumer.TOPICS_KNOWN_MS", 300)


@pytest.mark.parametrize("client", SOON)
def test_a_topic_that_is_deleted_while_it_is_read_ends_the_term_with_that(
    drive, kafka_broker, four_partitions, client
):
    driver = drive(client=client, offsets="zookeeper", **SOON[client]).begin()
    delete_topic(kafka_broker.address, four_partitions)
    with pytest.raises(UnknownTopic, match=r"was deleted while it was read|UNKNOWN_TOPIC"):
        driver.run_until(lambda: False)


@pytest.mark.parametrize(
    ("client", "offsets"), [("kafka-python", "kafka"), ("confluent", "zookeeper")]
)
def test_topics_that_match_are_read_also_those_made_later_and_one_that_is_deleted_ends_no_term(
    drive, kafka_broker, topic_name, client, offsets
):
    address, first, later = kafka_broker.address, f"{topic_name}-1", f"{topic_name}-later"
    letters = f"{topic_name}-dead"
    create_topics(address, {first: 2, letters: 1, f"my-{topic_name}-1": 1})
    more = {"on_error": dead_letter(letters), "auto_offset_reset": "latest", **SOON[client]}
    driver = drive(
        client=client, offsets=offsets, topics=re.compile(f"{topic_name}-.*"), **more
    ).begin()
    for topic in (letters, f"my-{topic_name}-1", first):
        produce(address, topic, [(None, topic.encode())])
    driver.run_until(lambda: driver.career.values() == [first.encode()])
    create_topics(address, {later: 1})
    produce(address, later, [(None, b"at once")])
    driver.run_until(lambda: b"at once" in driver.career.values())
    delete_topic(address, first)
    produce(address, later, [(None, b"after")])
    driver.run_until(lambda: b"after" in driver.career.values())
    assert driver.career.values() == [first.encode(), b"at once", b"after"]


def test_a_pattern_that_nothing_matches_is_refused(drive):
    with pytest.raises(UnknownTopic, match=r"no topic on Kafka .* matches 'no-such-\.\*'"):
        drive(topics=re.compile("no-such-.*"))
