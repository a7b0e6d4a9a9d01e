"""Makes the servers that the environment asks for: from jars (the default), in containers, or given
by address (``LEADERQ_ZOOKEEPER`` and ``LEADERQ_KAFKA``). Also makes the pair of ZooKeeper and Kafka
on which ``leaderq servers up``, the demo and the examples run.
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

_CONTAINERS = {
    "ZooKeeperServer": "ZooKeeperContainer",
    "ZooKeeperEnsemble": "ZooKeeperContainerEnsemble",
    "KafkaBroker": "KafkaContainer",
    "KafkaCluster": "KafkaContainerCluster",
}
_USUAL_PORTS = {"ZooKeeperServer": 2181, "KafkaBroker": 9092}


def _refuse(sentence: str) -> NoReturn:
    raise ConfigurationError(sentence)


class GivenServer(Server):
    """A server that belongs to somebody else; ``start`` and ``stop`` leave it alone.

    ``on_fault`` is called with a sentence when a fault is asked for, or something of a server that
    nobody knows of this one, such as ``members`` (a plugin then skips the test).
    """

    on_fault: Callable[[str], NoReturn] = staticmethod(_refuse)

    def __init__(self, what: str, address: str, source: str) -> None:
        self.what = what
        self.name = what.lower()
        self._address = address
        self._source = source

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

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):  # asked for by Python and pytest
            raise AttributeError(name)
        unknown = f"a given server is known by its address only, and has no {name!r}"
        self.on_fault(f"{self.what} is given by {self._source}; {unknown}")

    def _no_faults(self, deed: str) -> NoReturn:
        self.on_fault(f"{self.what} is given by {self._source}; a given server is not {deed}")


def runs_from_jars(kind: str) -> bool:
    """Whether a server of this kind (see :func:`provided`) runs from jars, and so takes all
    options.

    :raises ConfigurationError: ``LEADERQ_SERVERS`` is unknown.
    """
    place = os.environ.get("LEADERQ_SERVERS") or "jars"
    if place not in ("jars", "docker"):
        raise ConfigurationError(f"LEADERQ_SERVERS is {place!r}; it must be 'jars' or 'docker'")
    return place == "jars" and not os.environ.get(_variable(kind))


def _software(kind: str) -> str:
    return "Kafka" if kind.startswith("Kafka") else "ZooKeeper"


def _variable(kind: str) -> str:
    return f"LEADERQ_{_software(kind).upper()}"


def provided(kind: str, *, progress: Progress = to_stderr, **options: Any) -> Server:
    """Make the server that the environment asks for, and do not start it. ``kind`` is the name of a
    class of :mod:`leaderq.testing`: ``ZooKeeperServer``, ``ZooKeeperEnsemble``, ``KafkaBroker`` or
    ``KafkaCluster``.
    """
    made: Server
    if runs_from_jars(kind):
        made = getattr(import_module("leaderq.testing"), kind)(progress=progress, **options)
    elif address := os.environ.get(_variable(kind)):
        made = GivenServer(_software(kind), address, _variable(kind))
    else:
        contained = import_module("leaderq.testing.containers")
        made = getattr(contained, _CONTAINERS[kind])(**options)
    return made


class ServerPair(ServerGroup[Server]):
    """One ZooKeeper server and one Kafka broker, as the environment asks; a context manager.

    ``usual_ports``: use 2181 and 9092, if they are free. ``progress`` gets lines while jars are
    fetched and a line for each server that is up.
    """

    def __init__(self, *, progress: Progress = to_stderr, usual_ports: bool = False) -> None:
        self._progress = progress
        self.zookeeper, self.kafka = (
            provided(kind, progress=progress, **(usual_port(kind, progress) if usual_ports else {}))
            for kind in _USUAL_PORTS
        )
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
        """Start both servers; return when both answer.

        :raises ServerFailed: one did not start; the other is stopped again.
        :raises MissingPiece: Java, jars or Docker are missing; the message says how to get them.
        """
        super().start()
        for server in self.members:
            self._progress(f"{server.what} is up at {server.address}")
        return self


def usual_port(kind: str, progress: Progress) -> dict[str, int]:
    """The option for the default port, if that port is free; else no option."""
    port = _USUAL_PORTS[kind]
    if not runs_from_jars(kind):
        return {}
    if can_be_leased(port):
        return {"port": port}
    progress(f"port {port} is taken, so {_software(kind)} gets another")
    return {}
