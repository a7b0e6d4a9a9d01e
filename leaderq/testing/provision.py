"""Which kind of server the environment asks for: from jars (the default), in containers, or given by address."""

from __future__ import annotations

import os
from typing import Any

from leaderq.errors import ConfigurationError
from leaderq.testing.given import GivenServer
from leaderq.testing.jars import Progress, to_stderr
from leaderq.testing.server import Server


def wants_containers() -> bool:
    """Whether ``LEADERQ_SERVERS`` asks for containers.

    :raises ConfigurationError: it asks for something unknown.
    """
    kind = os.environ.get("LEADERQ_SERVERS", "jars") or "jars"
    if kind not in ("jars", "docker"):
        raise ConfigurationError(f"LEADERQ_SERVERS is {kind!r}; it must be 'jars' or 'docker'")
    return kind == "docker"


def zookeeper_server(*, progress: Progress = to_stderr, **options: Any) -> Server:
    """One ZooKeeper server, not started; ``options`` as of :class:`~leaderq.testing.zookeeper_server.ZooKeeperServer`."""
    if address := os.environ.get("LEADERQ_ZOOKEEPER"):
        return GivenServer("ZooKeeper", address, source="LEADERQ_ZOOKEEPER")
    if wants_containers():
        from leaderq.testing.containers import ZooKeeperContainer

        return ZooKeeperContainer(**options)
    from leaderq.testing.zookeeper_server import ZooKeeperServer

    return ZooKeeperServer(progress=progress, **options)


def kafka_server(*, progress: Progress = to_stderr, **options: Any) -> Server:
    """One Kafka broker, not started; ``options`` as of :class:`~leaderq.testing.kafka_server.KafkaBroker`."""
    if address := os.environ.get("LEADERQ_KAFKA"):
        return GivenServer("Kafka", address, source="LEADERQ_KAFKA")
    if wants_containers():
        from leaderq.testing.containers import KafkaContainer

        return KafkaContainer(**options)
    from leaderq.testing.kafka_server import KafkaBroker

    return KafkaBroker(progress=progress, **options)
