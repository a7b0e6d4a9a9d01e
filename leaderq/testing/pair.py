"""ZooKeeper and Kafka together, started at the same time: what ``leaderq servers up``, the demo and the examples run on."""

from __future__ import annotations

from types import TracebackType

from leaderq.testing.jars import Progress, to_stderr
from leaderq.testing.ports import can_be_leased
from leaderq.testing.provision import kafka_server, runs_from_jars, zookeeper_server
from leaderq.testing.server import all_at_once


class ServerPair:
    """One ZooKeeper server and one Kafka broker; a context manager.

    They are what the environment asks for: from jars, in containers (``LEADERQ_SERVERS=docker``), or given by address
    (``LEADERQ_ZOOKEEPER``, ``LEADERQ_KAFKA``; a given server is neither started nor stopped).
    ``usual_ports``: on 2181 and 9092, where everybody looks first, as far as these are free.
    ``progress`` gets a line for each jar fetched and for each server that is up.
    """

    def __init__(self, *, progress: Progress = to_stderr, usual_ports: bool = False) -> None:
        self._progress = progress
        self.zookeeper = zookeeper_server(progress=progress, **_at("ZooKeeper", usual_ports))
        self.kafka = kafka_server(progress=progress, **_at("Kafka", usual_ports))

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
        try:
            all_at_once(self._start_one, [self.zookeeper, self.kafka])
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop both and remove their data; may be called again."""
        all_at_once(lambda server: server.stop(), [self.zookeeper, self.kafka])

    def __enter__(self) -> ServerPair:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _start_one(self, server: object) -> None:
        started = self.zookeeper.start() if server is self.zookeeper else self.kafka.start()
        self._progress(f"{started.what} is up at {started.address}")


_USUAL_PORTS = {"ZooKeeper": 2181, "Kafka": 9092}


def _at(what: str, usual_ports: bool) -> dict[str, int]:
    port = _USUAL_PORTS[what]
    return {"port": port} if usual_ports and runs_from_jars(what) and can_be_leased(port) else {}


def up(*, progress: Progress = to_stderr) -> ServerPair:
    """A started :class:`ServerPair`; ``stop()`` it when done (it also ends with this process)."""
    return ServerPair(progress=progress).start()
