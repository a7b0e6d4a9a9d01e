"""Kafka on demand: one broker, or a cluster; KRaft, every node broker and controller at once.

The two questions that tell whether a Kafka broker serves: which API versions, and which brokers are
registered.

Spoken by hand over a socket, since only ``leaderq.kafka`` may import a Kafka client, and readiness
needs few bytes of one.

Formatting a broker's storage, with Kafka's own tool once for each set of jars, and by copying its
result afterwards.

The tool takes a second of a JVM to write two files: the features of the new cluster, the same for
all (kept in the cache), and three ids. Only pinned jars are formatted this way, so what the tool
wrote once is what it would write again.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import socket
import struct
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leaderq.errors import ServerFailed
from leaderq.testing.jars import cache_folder, class_path
from leaderq.testing.java import find_java
from leaderq.testing.java_server import JavaServer, JavaServerOptions
from leaderq.testing.ports import HOST, read_exactly
from leaderq.testing.server import START_TIMEOUT_S, ServerGroup
from leaderq.testing.waiting import patience

if TYPE_CHECKING:
    from typing_extensions import Unpack

_API_VERSIONS: Final = 18
_METADATA: Final = 3


def registered_brokers(host: str, port: int, *, timeout_s: float = 3.0) -> int:
    """How many brokers the one at ``host:port`` knows to be serving; 0 if it does not answer."""
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            answer = _ask(connection, _API_VERSIONS, version=0, correlation=1, body=b"")
            if struct.unpack(">h", answer[:2]) != (0,):
                return 0
            no_topics = struct.pack(">i", 0)
            answer = _ask(connection, _METADATA, version=1, correlation=2, body=no_topics)
            return int(struct.unpack(">i", answer[:4])[0])
    except (OSError, struct.error):
        return 0


def _ask(
    connection: socket.socket, api: int, *, version: int, correlation: int, body: bytes
) -> bytes:
    client = b"leaderq"
    request = struct.pack(">hhih", api, version, correlation, len(client)) + client + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", read_exactly(connection, 4))
    answer = read_exactly(connection, min(size, 1 << 20))
    if struct.unpack(">i", answer[:4]) != (correlation,):
        raise ConnectionResetError("an answer to another question")
    return answer[4:]


_FEATURES = "bootstrap.checkpoint"


def new_id() -> str:
    """An id as Kafka writes them; none that begins with a dash, which its tools take for an
    option.
    """
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith(
        "-"
    ):
        pass
    return text


def format_storage(
    data: Path, configuration: Path, *, class_path: str, cluster_id: str, node_id: int
) -> None:
    """Make ``data`` the storage of broker ``node_id``, as ``configuration`` says.

    :raises ServerFailed: Kafka's tool refused, or took too long.
    """
    template = (
        cache_folder()
        / "formats"
        / f"kafka-{hashlib.sha256(class_path.encode()).hexdigest()[:12]}.checkpoint"
    )
    if not template.exists():
        _format_with_tool(configuration, class_path, cluster_id)
        template.parent.mkdir(exist_ok=True)
        draft = template.with_suffix(f".{os.getpid()}-{node_id}.draft")
        shutil.copyfile(data / _FEATURES, draft)
        draft.replace(template)
        return
    data.mkdir()
    shutil.copyfile(template, data / _FEATURES)
    (data / "meta.properties").write_text(
        f"version=1\ncluster.id={cluster_id}\nnode.id={node_id}\ndirectory.id={new_id()}\n"
    )


def _format_with_tool(configuration: Path, class_path: str, cluster_id: str) -> None:
    command = [
        str(find_java().program),
        "-XX:TieredStopAtLevel=1",
        "-XX:+UseSerialGC",
        "-cp",
        class_path,
    ]
    command += ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(configuration)]
    timeout_s = START_TIMEOUT_S * patience()
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=timeout_s
        )
    except subprocess.TimeoutExpired as exc:
        raise ServerFailed(
            f"formatting Kafka's storage as {configuration} says took longer than {timeout_s:g} s"
        ) from exc
    if done.returncode != 0:
        words = (done.stdout + done.stderr).strip()
        raise ServerFailed(
            f"Kafka's storage could not be formatted as {configuration} says: {words}"
        )


class KafkaBroker(JavaServer):
    """One Kafka broker, a cluster by itself unless a :class:`KafkaCluster` made it.

    ``properties`` are added to the broker's configuration, and win. ``listeners`` are further
    listeners beside the plain one, name to protocol (``{"SECURE": "SASL_SSL"}``): each gets a port
    (``address_of("SECURE")``), its security goes into ``properties``. ``advertised`` (also an
    attribute, read at each start) gives the address that a further listener tells its clients to
    use: that of a fault proxy before it. Topics are not created by being used.
    """

    what = "Kafka"
    jar_set = "kafka"
    heap_mb = 512

    def __init__(
        self,
        *,
        properties: Mapping[str, str] | None = None,
        listeners: Mapping[str, str] | None = None,
        advertised: Mapping[str, str] | None = None,
        **options: Unpack[JavaServerOptions],
    ) -> None:
        super().__init__(options)
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
            jars = class_path(self.jar_set, progress=self._progress)
            format_storage(
                folder / "data",
                file,
                class_path=jars,
                cluster_id=self._cluster_id,
                node_id=self.node_id,
            )
        return ["kafka.Kafka", str(file)]

    def _identity(self, folder: Path) -> dict[str, str]:
        voters = ",".join(
            f"{member.node_id}@{member._port('controller').address}" for member in self._members
        )
        return {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.quorum.voters": voters,
            "log.dirs": str(folder / "data"),
        }

    def _network(self) -> dict[str, str]:
        protocols = {"PLAINTEXT": "PLAINTEXT", **self._listeners}
        clients = [
            f"PLAINTEXT://{self.address}",
            *(f"{name}://{self.address_of(name)}" for name in self._listeners),
        ]
        protocols["CONTROLLER"] = "PLAINTEXT"
        told = {
            "PLAINTEXT": self.address,
            **{name: self.address_of(name) for name in self._listeners},
            **self.advertised,
        }
        return {
            "listeners": ",".join([*clients, f"CONTROLLER://{self._port('controller').address}"]),
            "advertised.listeners": ",".join(
                f"{name}://{address}" for name, address in told.items()
            ),
            "listener.security.protocol.map": ",".join(
                f"{name}:{protocol}" for name, protocol in protocols.items()
            ),
            "inter.broker.listener.name": "PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
        }


def replication(brokers: int) -> dict[str, str]:
    """The properties by which a cluster of ``brokers`` keeps up to three copies, and goes on with
    one of them lost.
    """
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
    # A killed broker may register again only when the controller has given up its former self: 9 s
    # by default.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


class KafkaCluster(ServerGroup[KafkaBroker]):
    """``size`` brokers in one cluster; serving when each of them knows all. ``options`` are those
    of each.
    """

    what = "a Kafka cluster"

    def __init__(self, size: int = 3, *, name: str = "kafka", **options: Any) -> None:
        members = [
            KafkaBroker(**{"heap_mb": 384, **options, "name": f"{name}-{number}"})
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
