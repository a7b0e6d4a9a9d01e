"""A Kafka broker of the module's own, for tests that kill it: one that holds few topics is soon
back.
"""

from __future__ import annotations

import pytest

from leaderq.testing.plugin import serve_kafka


@pytest.fixture(name="kafka_broker", scope="module")
def own_broker(pytestconfig):
    """In place of the session's."""
    yield from serve_kafka(pytestconfig)
