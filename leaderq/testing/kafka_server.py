"""Kafka on demand: one broker, or a cluster; KRaft, every node broker and controller at once."""

from __future__ import annotations

import base64
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from leaderq.errors import ServerFailed
from leaderq.testing.jars import Progress, class_path, to_stderr
from leaderq.testing.java import find_java
from leaderq.testing.java_server import QUICK_START, JavaServer
from leaderq.testing.kafka_wire import registered_brokers
from leaderq.testing.ports import HOST
from leaderq.testing.server import START_TIMEOUT_S, Server, all_at_once
from leaderq.testing.waiting import patience


class KafkaBroker(JavaServer):
    """One Kafka broker, a cluster by itself unless a :class:`KafkaCluster` made it.

    ``properties`` are added to the broker's configuration, and win. ``listeners`` are further listeners beside the plain one, name
    to protocol (``{"SECURE": "SASL_SSL"}``): each gets a port (``address_of("SECURE")``), its security goes into ``properties``.
    Topics are not created by being used.
    """

    what = "Kafka"
    jar_set = "kafka"

    def __init__(
        self,
        *,
        port: int | None = None,
        data_dir: Path | str | None = None,
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        keep_data: bool = False,
        heap_mb: int = 512,
        jvm_options: Sequence[str] = (),
        name: str = "kafka",
        progress: Progress = to_stderr,
    ) -> None:
        super().__init__(
            port=port, data_dir=data_dir, keep_data=keep_data, heap_mb=heap_mb, jvm_options=jvm_options, progress=progress
        )
        self.name = name
        self._properties = dict(properties or {})
        self._listeners = dict(listeners or {})
        self.port_names = ("client", "controller", *self._listeners)
        self._members: Sequence[KafkaBroker] = (self,)
        self._cluster_id = _new_id()

    @property
    def node_id(self) -> int:
        """The broker's id within its cluster, from 1."""
        return self._members.index(self) + 1

    def address_of(self, listener: str) -> str:
        """Where clients of a further listener connect."""
        return self._port(listener).address

    def _answers(self) -> bool:
        return registered_brokers(HOST, self.port) >= len(self._members)

    def _may_move(self) -> bool:
        return super()._may_move() and len(self._members) == 1  # the other members know these ports

    def _prepare(self, folder: Path) -> list[str]:
        file = folder / "server.properties"
        lines = {**self._identity(folder), **self._network(), **self._replication(), **_SMALL, **self._properties}
        file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        file.chmod(0o600)
        if not (folder / "data" / "meta.properties").exists():
            self._format(folder, file)
        return ["kafka.Kafka", str(file)]

    def _format(self, folder: Path, file: Path) -> None:
        java = find_java()
        command = [str(java.program), *QUICK_START, "-cp", class_path("kafka", progress=self._progress)]
        command += ["kafka.tools.StorageTool", "format", "-t", self._cluster_id, "-c", str(file)]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, check=False, timeout=START_TIMEOUT_S * patience()
            )
        except subprocess.TimeoutExpired as exc:
            raise ServerFailed(f"formatting the storage of {self.name} took longer than {exc.timeout:g} s") from exc
        if done.returncode != 0:
            raise ServerFailed(f"the storage of {self.name} could not be formatted: {(done.stdout + done.stderr).strip()}")

    def _identity(self, folder: Path) -> dict[str, str]:
        voters = ",".join(f"{member.node_id}@{member._port('controller').address}" for member in self._members)
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.quorum.voters": voters,
            "log.dirs": str(folder / "data"),
        }

    def _network(self) -> dict[str, str]:
        protocols = {"PLAINTEXT": "PLAINTEXT", **self._listeners}
        clients = [f"PLAINTEXT://{self.address}", *(f"{name}://{self.address_of(name)}" for name in self._listeners)]
        protocols["CONTROLLER"] = "PLAINTEXT"
        return {
            "listeners": ",".join([*clients, f"CONTROLLER://{self._port('controller').address}"]),
            "advertised.listeners": ",".join(clients),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
        }

    def _replication(self) -> dict[str, str]:
        copies = min(3, len(self._members))
        keys = ("default", "offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        in_sync = str(max(1, copies - 1))
        return {
            **{f"{key}.replication.factor": str(copies) for key in keys},
            "min.insync.replicas": in_sync,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.min.isr": in_sync,
        }


# A broker for few topics and few clients, that is up soon and does not make a test wait.
_SMALL = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "background.threads": "2",
    "log.cleaner.dedupe.buffer.size": "8388608",
    # A killed broker may register again only when the controller has given up its former self: 9 s by default.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


class KafkaCluster(Server):
    """``size`` brokers in one cluster; serving when each of them knows all.

    ``brokers`` are the single ones, to be killed, frozen and started one by one; the methods of the cluster act on all.
    """

    what = "a Kafka cluster"

    def __init__(
        self,
        size: int = 3,
        *,
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        keep_data: bool = False,
        name: str = "kafka",
        progress: Progress = to_stderr,
    ) -> None:
        self.name = name
        self.brokers = [
            KafkaBroker(
                properties=properties,
                listeners=listeners,
                keep_data=keep_data,
                heap_mb=384,
                name=f"{name}-{number}",
                progress=progress,
            )
            for number in range(1, size + 1)
        ]
        for broker in self.brokers:
            broker._members = self.brokers
            broker._cluster_id = self.brokers[0]._cluster_id

    @property
    def address(self) -> str:
        return ",".join(broker.address for broker in self.brokers)

    def address_of(self, listener: str) -> str:
        """Where clients of a further listener connect."""
        return ",".join(broker.address_of(listener) for broker in self.brokers)

    @property
    def alive(self) -> bool:
        return all(broker.alive for broker in self.brokers)

    @property
    def log_paths(self) -> Sequence[Path]:
        return [path for broker in self.brokers for path in broker.log_paths]

    def start(self) -> KafkaCluster:
        for broker in self.brokers:
            broker.lease_ports()
        try:
            all_at_once(KafkaBroker.start, self.brokers)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, *, keep_data: bool = False) -> None:
        all_at_once(lambda broker: broker.stop(keep_data=keep_data), self.brokers)

    def kill(self) -> None:
        for broker in self.brokers:
            broker.kill()

    def freeze(self) -> None:
        for broker in self.brokers:
            broker.freeze()

    def thaw(self) -> None:
        for broker in self.brokers:
            broker.thaw()

    def heal(self) -> None:
        self.thaw()
        all_at_once(KafkaBroker.start, self.brokers)


def _new_id() -> str:
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
