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


def runs_from_jars(what: str) -> bool:
    """Whether the server ("ZooKeeper" or "Kafka") will be one from jars, with all their options."""
    return _given(what) is None and not wants_containers()


def zookeeper_server(*, progress: Progress = to_stderr, **options: Any) -> Server:
    """One ZooKeeper server, not started; ``options`` as of :class:`~leaderq.testing.zookeeper_server.ZooKeeperServer`."""
    if (given := _given("ZooKeeper")) is not None:
        return given
    if wants_containers():
        from leaderq.testing import containers

        return containers.ZooKeeperContainer(**options)
    from leaderq.testing.zookeeper_server import ZooKeeperServer

    return ZooKeeperServer(progress=progress, **options)


def zookeeper_ensemble(*, progress: Progress = to_stderr, **options: Any) -> Server:
    """A ZooKeeper ensemble of three, not started."""
    if (given := _given("ZooKeeper")) is not None:
        return given
    if wants_containers():
        from leaderq.testing import containers

        return containers.ZooKeeperContainerEnsemble(**options)
    from leaderq.testing.zookeeper_server import ZooKeeperEnsemble

    return ZooKeeperEnsemble(progress=progress, **options)


def kafka_server(*, progress: Progress = to_stderr, **options: Any) -> Server:
    """One Kafka broker, not started; ``options`` as of :class:`~leaderq.testing.kafka_server.KafkaBroker`."""
    if (given := _given("Kafka")) is not None:
        return given
    if wants_containers():
        from leaderq.testing import containers

        return containers.KafkaContainer(**options)
    from leaderq.testing.kafka_server import KafkaBroker

    return KafkaBroker(progress=progress, **options)


def kafka_cluster(*, progress: Progress = to_stderr, **options: Any) -> Server:
    """A Kafka cluster of three, not started."""
    if (given := _given("Kafka")) is not None:
        return given
    if wants_containers():
        from leaderq.testing import containers

        return containers.KafkaContainerCluster(**options)
    from leaderq.testing.kafka_server import KafkaCluster

    return KafkaCluster(progress=progress, **options)


def _given(what: str) -> GivenServer | None:
    variable = f"LEADERQ_{what.upper()}"
    address = os.environ.get(variable)
    return GivenServer(what, address, source=variable) if address else None
