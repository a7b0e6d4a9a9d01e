"""A topic of its own for each test, what lies on it, and sessions for queues."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from reading_topics import Read, read_all

from leaderq.kafka.topics import create_topics
from leaderq.zookeeper import Session, connect


@pytest.fixture
def topic(kafka_broker: Any, topic_name: str) -> str:
    """A topic of 4 partitions."""
    create_topics(kafka_broker.address, {topic_name: 4})
    return topic_name


@pytest.fixture
def stored(kafka_broker: Any, topic: str) -> Read:
    """Reads all that lies on the topic, in order within each partition."""
    return lambda: read_all(kafka_broker.address, topic)


@pytest.fixture
def session(zookeeper_server: Any, znode_root: str) -> Iterator[Session]:
    with connect(zookeeper_server.address + znode_root) as session:
        yield session
