"""Kafka on demand: one broker, or a cluster; KRaft, every node broker and controller at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from leaderq.testing.jars import Progress, class_path, to_stderr
from leaderq.testing.java_server import JavaServer
from leaderq.testing.kafka_storage import format_storage, new_id
from leaderq.testing.kafka_wire import registered_brokers
from leaderq.testing.ports import HOST
from leaderq.testing.server_group import ServerGroup


class KafkaBroker(JavaServer):
    """One Kafka broker, a cluster by itself unless a :class:`KafkaCluster` made it.

    ``properties`` are added to the broker's configuration, and win. ``listeners`` are further listeners beside the plain one, name
    to protocol (``{"SECURE": "SASL_SSL"}``): each gets a port (``address_of("SECURE")``), its security goes into ``properties``.
    ``advertised`` (also an attribute, read at each start) gives the address that a further listener tells its clients to use: that of
    a fault proxy before it. Topics are not created by being used.
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
        advertised: Mapping[str, str] | None = None,
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
        self.advertised = dict(advertised or {})
        self.port_names = ("client", "controller", *self._listeners)
        self._members: Sequence[KafkaBroker] = (self,)
        self._cluster_id = new_id()

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
        return super()._may_move() and not self.advertised  # a proxy knows the port

    def _is_alone(self) -> bool:
        return len(self._members) == 1

    def _prepare(self, folder: Path) -> list[str]:
        file = folder / "server.properties"
        lines = {
            **self._identity(folder),
            **self._network(),
            **replication(len(self._members)),
            **SMALL_BROKER,
            **self._properties,
        }
        file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        file.chmod(0o600)
        if not (folder / "data" / "meta.properties").exists():
            jars = class_path("kafka", progress=self._progress)
            format_storage(folder / "data", file, class_path=jars, cluster_id=self._cluster_id, node_id=self.node_id)
        return ["kafka.Kafka", str(file)]

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
        told = {"PLAINTEXT": self.address, **{name: self.address_of(name) for name in self._listeners}, **self.advertised}
        return {
            "listeners": ",".join([*clients, f"CONTROLLER://{self._port('controller').address}"]),
            "advertised.listeners": ",".join(f"{name}://{address}" for name, address in told.items()),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
        }


def replication(brokers: int) -> dict[str, str]:
    """The properties by which a cluster of ``brokers`` keeps up to three copies, and goes on with one of them lost."""
    copies = min(3, brokers)
    keys = ("default", "offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
    in_sync = str(max(1, copies - 1))
    return {
        **{f"{key}.replication.factor": str(copies) for key in keys},
        "min.insync.replicas": in_sync,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


# A broker for few topics and few clients, that is up soon and does not make a test wait.
SMALL_BROKER = {
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


class KafkaCluster(ServerGroup[KafkaBroker]):
    """``size`` brokers in one cluster; serving when each of them knows all."""

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
        members = [
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
        super().__init__(name, members)
        for member in members:
            member._members = members
            member._cluster_id = members[0]._cluster_id

    def address_of(self, listener: str) -> str:
        """Where clients of a further listener connect."""
        return ",".join(member.address_of(listener) for member in self.members)

    def prepare(self) -> None:
        for member in self.members:
            member.lease_ports()
