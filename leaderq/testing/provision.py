"""Which servers the environment asks for: from jars (the default), in containers, or given by
address (``LEADERQ_ZOOKEEPER`` and ``LEADERQ_KAFKA``); and ZooKeeper and Kafka together, which
``leaderq servers up``, the demo and the examples run on.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

from leaderq.errors import ConfigurationError
from leaderq.testing.jars import Progress, to_stderr
from leaderq.testing.ports import can_be_leased
from leaderq.testing.server import Server, ServerGroup


def _refuse(sentence: str) -> NoReturn:
    raise ConfigurationError(sentence)


class GivenServer(Server):
    """A server of someone else's. ``start`` and ``stop`` leave it alone; it cannot be killed,
    frozen or restarted.

    ``on_fault`` is called with a sentence when a fault is asked for (a test plugin skips the test
    there).
    """

    def __init__(
        self, what: str, address: str, *, source: str, on_fault: Callable[[str], NoReturn] = _refuse
    ) -> None:
        self.what = what
        self.name = what.lower()
        self._address = address
        self._source = source
        self.on_fault = on_fault

    @property
    def address(self) -> str:
        return self._address

    @property
    def alive(self) -> bool:
        return True

    @property
    def log_paths(self) -> Sequence[Path]:
        return []

    def start(self) -> GivenServer:
        return self

    def stop(self, *, keep_data: bool = False) -> None:
        if keep_data:
            self._no_faults("stopped and started")

    def kill(self) -> None:
        self._no_faults("killed")

    def freeze(self) -> None:
        self._no_faults("frozen")

    def thaw(self) -> None:
        self._no_faults("thawed")

    def heal(self) -> None:
        return

    def _no_faults(self, deed: str) -> NoReturn:
        self.on_fault(f"{self.what} is given by {self._source}; a given server is not {deed}")


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
    """One ZooKeeper server, not started; ``options`` as of
    :class:`~leaderq.testing.ZooKeeperServer`.
    """
    return _chosen("ZooKeeper", "ZooKeeperServer", "ZooKeeperContainer", progress, options)


def zookeeper_ensemble(*, progress: Progress = to_stderr, **options: Any) -> Server:
    """A ZooKeeper ensemble of three, not started."""
    return _chosen(
        "ZooKeeper", "ZooKeeperEnsemble", "ZooKeeperContainerEnsemble", progress, options
    )


def kafka_server(*, progress: Progress = to_stderr, **options: Any) -> Server:
    """One Kafka broker, not started; ``options`` as of :class:`~leaderq.testing.KafkaBroker`."""
    return _chosen("Kafka", "KafkaBroker", "KafkaContainer", progress, options)


def kafka_cluster(*, progress: Progress = to_stderr, **options: Any) -> Server:
    """A Kafka cluster of three, not started."""
    return _chosen("Kafka", "KafkaCluster", "KafkaContainerCluster", progress, options)


def _chosen(
    what: str, from_jars: str, contained: str, progress: Progress, options: dict[str, Any]
) -> Server:
    if (given := _given(what)) is not None:
        return given
    made: Server
    if wants_containers():
        made = getattr(import_module("leaderq.testing.containers"), contained)(**options)
    else:
        made = getattr(import_module("leaderq.testing"), from_jars)(progress=progress, **options)
    return made


def _given(what: str) -> GivenServer | None:
    variable = f"LEADERQ_{what.upper()}"
    address = os.environ.get(variable)
    return GivenServer(what, address, source=variable) if address else None


class ServerPair(ServerGroup[Server]):
    """One ZooKeeper server and one Kafka broker; a context manager.

    They are what the environment asks for: from jars, in containers (``LEADERQ_SERVERS=docker``),
    or given by address (``LEADERQ_ZOOKEEPER``, ``LEADERQ_KAFKA``; a given server is neither started
    nor stopped). ``usual_ports``: on 2181 and 9092, where everybody looks first, as far as these
    are free. ``progress`` gets a line for each jar fetched and for each server that is up.
    """

    def __init__(self, *, progress: Progress = to_stderr, usual_ports: bool = False) -> None:
        self._progress = progress
        self.zookeeper = zookeeper_server(progress=progress, **_at("ZooKeeper", usual_ports))
        self.kafka = kafka_server(progress=progress, **_at("Kafka", usual_ports))
        super().__init__("servers", [self.zookeeper, self.kafka])

    @property
    def zookeeper_address(self) -> str:
        """For ``--zookeeper``."""
        return self.zookeeper.address

    @property
    def kafka_address(self) -> str:
        """For ``--kafka``."""
        return self.kafka.address

    def start(self) -> ServerPair:
        """Start both; returns when both answer.

        :raises ServerFailed: one did not start; the other is stopped again.
        :raises MissingPiece: Java, jars or Docker are missing; the message says how to get them.
        """
        super().start()
        for server in self.members:
            self._progress(f"{server.what} is up at {server.address}")
        return self


_USUAL_PORTS = {"ZooKeeper": 2181, "Kafka": 9092}


def _at(what: str, usual_ports: bool) -> dict[str, int]:
    port = _USUAL_PORTS[what]
    return {"port": port} if usual_ports and runs_from_jars(what) and can_be_leased(port) else {}


def up(*, progress: Progress = to_stderr) -> ServerPair:
    """A started :class:`ServerPair`; ``stop()`` it when done (it also ends with this process)."""
    return ServerPair(progress=progress).start()
