"""A Kafka broker of the module's own, for tests that kill it: one that holds few topics is soon
back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from leaderq.testing.plugin import serve_kafka


@pytest.fixture(name="kafka_broker", scope="module")
def own_broker(pytestconfig) -> Iterator[Any]:
    """In place of the session's."""
    yield from serve_kafka(pytestconfig)
