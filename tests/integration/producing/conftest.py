"""A topic of its own for each test, and what lies on it."""

from __future__ import annotations

import pytest
from reading_topics import Read, read_all

from leaderq.kafka.topics import create_topics


@pytest.fixture
def topic(kafka_broker, topic_name) -> str:
    create_topics(kafka_broker.address, {topic_name: 4})
    return topic_name


@pytest.fixture
def stored(kafka_broker, topic) -> Read:
    """Reads all that lies on the topic, in order within each partition."""
    return lambda: read_all(kafka_broker.address, topic)
