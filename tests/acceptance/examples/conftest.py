"""Somebody who follows a README; what they left open is closed after the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from following_readmes import Reader
from kafka import KafkaAdminClient


@pytest.fixture
def reader(tmp_path) -> Iterator[Callable[..., Reader]]:
    with ExitStack() as stack:
        yield lambda cwd, **environment: Reader(cwd, tmp_path, environment, stack)


@pytest.fixture
def servers(zookeeper_server, kafka_broker, znode_root) -> dict[str, str]:
    """The variables of servers as ``leaderq servers up`` exports them: those of the session, with
    nothing on them that an example would find.
    """
    admin = KafkaAdminClient(bootstrap_servers=kafka_broker.address)
    if "clicks" in admin.list_topics():
        admin.delete_topics(["clicks"])
    admin.close()
    return {
        "LEADERQ_ZOOKEEPER": zookeeper_server.address + znode_root,
        "LEADERQ_KAFKA": kafka_broker.address,
    }
