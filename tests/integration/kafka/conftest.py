"""A topic of its own for each test, and careers prepared on it."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pytest
from driving import Driver, Recorder, given

from leaderq.kafka import KafkaLeaderCareer
from leaderq.kafka.topics import create_topics, produce
from leaderq.zookeeper import connect


@pytest.fixture
def four_partitions(kafka_broker, topic_name):
    create_topics(kafka_broker.address, {topic_name: 4})
    return topic_name


@pytest.fixture
def feed(kafka_broker, four_partitions):
    def put(first: int, last: int) -> list[bytes]:
        values = [b"%d" % n for n in range(first, last)]
        rows = ((b"k%d" % (int(value) % 16), value, [("n", value)]) for value in values)
        produce(kafka_broker.address, four_partitions, rows)
        return values

    return put


@pytest.fixture
def session(zookeeper_server):
    """A session of the careers that the test drives."""
    with connect(zookeeper_server.address) as session:
        yield session


@pytest.fixture
def drive(kafka_broker, four_partitions, session, znode_root):
    made: list[Driver] = []

    def make(
        kind: type[KafkaLeaderCareer] = Recorder,
        settings: Mapping[str, Any] | None = None,
        **attributes: Any,
    ) -> Driver:
        declared = {"topics": four_partitions, "group": four_partitions, **attributes}
        career: Any = type(kind.__name__, (kind,), declared)()
        usual = {"kafka": kafka_broker.address, "career": four_partitions, "root": znode_root}
        id = f"candidate-{len(made)}"
        driver = Driver(given(career, session, id, **{**usual, **(settings or {})}))
        made.append(driver)
        career.prepare()
        return driver

    yield make
    for driver in made:
        with suppress(Exception):
            driver.career.retire()
