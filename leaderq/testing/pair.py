"""ZooKeeper and Kafka together, started at the same time: what ``leaderq servers up``, the demo and the examples run on."""

from __future__ import annotations

from types import TracebackType

from leaderq.testing.jars import Progress, to_stderr
from leaderq.testing.provision import kafka_server, zookeeper_server
from leaderq.testing.server import all_at_once


class ServerPair:
    """One ZooKeeper server and one Kafka broker; a context manager.

    They are what the environment asks for: from jars, in containers (``LEADERQ_SERVERS=docker``), or given by address
    (``LEADERQ_ZOOKEEPER``, ``LEADERQ_KAFKA``; a given server is neither started nor stopped).
    ``progress`` gets a line for each jar fetched and for each server that is up.
    """

    def __init__(self, *, progress: Progress = to_stderr) -> None:
        self._progress = progress
        self.zookeeper = zookeeper_server(progress=progress)
        self.kafka = kafka_server(progress=progress)

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


def up(*, progress: Progress = to_stderr) -> ServerPair:
    """A started :class:`ServerPair`; ``stop()`` it when done (it also ends with this process)."""
    return ServerPair(progress=progress).start()
