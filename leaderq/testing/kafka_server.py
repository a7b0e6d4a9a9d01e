"""Kafka on demand: one broker, or a cluster; KRaft, and every node is broker and controller.

A plain socket asks whether a broker serves (API versions, registered brokers): only
``leaderq.kafka`` may import a Kafka client, and these requests take few bytes.

Kafka's own tool formats a broker's storage once for each set of jars. The tool needs a JVM for a
second to write two files: the features of the new cluster, which are always the same, and three
ids. So its result is kept in the cache, and copied later.
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
from typing import TYPE_CHECKING, Final

from leaderq.errors import ServerFailed
from leaderq.testing.jars import cache_folder, class_path
from leaderq.testing.java import find_java
from leaderq.testing.java_server import JavaServer, JavaServerOptions, write_properties
from leaderq.testing.ports import HOST
from leaderq.testing.server import START_TIMEOUT_S, PeerGroup
from leaderq.testing.waiting import patience

if TYPE_CHECKING:
    from typing_extensions import Unpack

_API_VERSIONS: Final = 18
_METADATA: Final = 3


def registered_brokers(host: str, port: int, *, timeout_s: float = 3.0) -> int:
    """How many serving brokers the broker at ``host:port`` knows; 0 if it does not answer."""
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
    with connection.makefile("rb") as stream:
        (size,) = struct.unpack(">i", stream.read(4))
        answer = stream.read(min(size, 1 << 20))
    if struct.unpack(">i", answer[:4]) != (correlation,):
        raise ConnectionResetError("an answer to another question")
    return answer[4:]


_FEATURES = "bootstrap.checkpoint"


def new_id() -> str:
    """A new id, as Kafka writes ids. It does not begin with a dash, which Kafka's tools take for an
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
    java = [str(find_java().program), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(configuration)]
    timeout_s = START_TIMEOUT_S * patience()
    try:
        done = subprocess.run(
            [*java, "-cp", class_path, *tool],
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
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
    """One Kafka broker, which is a cluster by itself unless a :class:`KafkaCluster` made it.

    ``properties`` are added to its configuration, and override it. ``listeners`` are further
    listeners, name to protocol (``{"SECURE": "SASL_SSL"}``). Each gets a port
    (``address_of("SECURE")``); its security belongs in ``properties``. ``advertised`` maps a
    further listener to the address that it tells its clients to use, such as that of a fault proxy
    in front. Topics are not created by use.
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
        self._advertised = dict(advertised or {})
        self.port_names = ("client", "controller", *self._listeners)
        self.cluster_id = new_id()

    @property
    def node_id(self) -> int:
        """The broker's id within its cluster, from 1."""
        return self.number

    def _answers(self) -> bool:
        return registered_brokers(HOST, self.port) >= len(self.peers)

    def _may_move(self) -> bool:
        return super()._may_move() and not self._advertised  # a proxy knows the port

    def _prepare(self, folder: Path) -> list[str]:
        at = {"PLAINTEXT": self.address} | {name: self.address_of(name) for name in self._listeners}
        lines = {
            **node_properties(
                self.node_id,
                [member.address_of("controller") for member in self.peers],
                at | {"CONTROLLER": self.address_of("controller")},
                at | self._advertised,
                protocols=self._listeners,
            ),
            "log.dirs": str(folder / "data"),
            **self._properties,
        }
        file = write_properties(folder / "server.properties", lines)
        if not (folder / "data" / "meta.properties").exists():
            format_storage(
                folder / "data",
                file,
                class_path=class_path(self.jar_set, progress=self._progress),
                cluster_id=self.peers[0].cluster_id,
                node_id=self.node_id,
            )
        return ["kafka.Kafka", str(file)]


def node_properties(
    number: int,
    controllers: Sequence[str],
    listeners: Mapping[str, str],
    advertised: Mapping[str, str],
    *,
    protocols: Mapping[str, str] | None = None,
    between: str = "PLAINTEXT",
) -> dict[str, str]:
    """The properties of node ``number`` in a small cluster, whose controllers have these addresses.

    ``listeners`` and ``advertised`` map names to addresses. The protocol of a listener is PLAINTEXT
    unless ``protocols`` has another. Brokers talk to each other through the listener ``between``.
    """
    voters = [f"{at}@{address}" for at, address in enumerate(controllers, start=1)]
    named = {name: (protocols or {}).get(name, "PLAINTEXT") for name in listeners}
    return {
        "process.roles": "broker,controller",
        "node.id": str(number),
        "controller.quorum.voters": ",".join(voters),
        "listeners": _listed(listeners, "://"),
        "advertised.listeners": _listed(advertised, "://"),
        "listener.security.protocol.map": _listed(named, ":"),
        "inter.broker.listener.name": between,
        "controller.listener.names": "CONTROLLER",
        **_replication(len(controllers)),
        **SMALL_BROKER,
    }


def _listed(named: Mapping[str, str], separator: str) -> str:
    return ",".join(f"{name}{separator}{value}" for name, value in named.items())


def _replication(brokers: int) -> dict[str, str]:
    """Properties for up to three copies of everything, one of which may be lost."""
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


class KafkaCluster(PeerGroup[KafkaBroker]):
    """``size`` brokers; the cluster serves when each broker knows all others. Each gets
    ``options``.
    """

    what = "a Kafka cluster"
    kind = KafkaBroker
    usual_options = {"heap_mb": 384}  # noqa: RUF012 - never changed

    def address_of(self, listener: str) -> str:
        """The addresses of a further listener, for clients."""
        return ",".join(member.address_of(listener) for member in self.members)
