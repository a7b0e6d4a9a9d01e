"""ZooKeeper and Kafka in containers (``LEADERQ_SERVERS=docker``): the official images, pinned, as
one server or a group, through testcontainers. They behave like servers from jars.

Each server has a container of its own and a fixed port of the host, which is published on the
loopback interface only, unless the engine is on another host. ``kill`` is ``docker kill``,
``freeze`` is ``docker pause``. The data are in the container and its volumes, which ``stop``
removes. The engine is asked each time for the state of a container.

Containers are removed by ``stop``, and by :mod:`leaderq.testing.server` when this process exits. If
this process was killed, testcontainers' reaper (``testcontainers/ryuk``) removes them. With
``TESTCONTAINERS_RYUK_DISABLED=true`` there is no reaper: a process that a signal killed leaves its
containers behind, labelled ``org.testcontainers=true``.
"""

from __future__ import annotations

import contextlib
import threading
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from leaderq.errors import MissingPiece, ServerFailed
from leaderq.testing.java_server import QUICK_START
from leaderq.testing.kafka_server import new_id, node_properties, registered_brokers
from leaderq.testing.ports import HOST
from leaderq.testing.server import (
    OwnServer,
    PeerGroup,
    ScratchFolder,
    log_tail,
    wait_until_serving,
)
from leaderq.testing.zookeeper_server import SETTINGS, TICK_MS, AskedServer, LedGroup

_GRACE_S: Final = 10
_KILL_TIMEOUT_S: Final = 30
# testcontainers makes its reaper with the first container, and two threads that start one each
# would make two of one name.
_starting: Final = threading.Lock()

C = TypeVar("C", bound="ContainerServer")


@contextlib.contextmanager
def docker_errors(doing: str) -> Iterator[None]:
    """Within this block, errors of the engine, of its client and of testcontainers become
    ``ServerFailed``.
    """
    from docker.errors import DockerException  # type: ignore[import-untyped]
    from testcontainers.core import exceptions

    theirs = exceptions.ContainerStartException, exceptions.ContainerConnectException
    try:
        yield
    except (DockerException, *theirs, OSError) as exc:
        raise ServerFailed(f"{doing} failed: {exc}") from exc


def engine_host() -> str:
    """The host of the Docker engine, under the name by which clients reach its published ports.

    :raises MissingPiece: testcontainers is not installed, or no engine answers.
    """
    try:
        from docker.errors import DockerException
        from testcontainers.core.docker_client import DockerClient
    except ImportError as exc:
        raise MissingPiece(
            "LEADERQ_SERVERS is 'docker'; to use it: pip install 'leaderq[docker]'"
        ) from exc
    try:
        client = DockerClient()
        client.client.ping()
    except (DockerException, OSError) as exc:
        raise MissingPiece(
            f"LEADERQ_SERVERS is 'docker', and no Docker engine answers ({exc}); start one, name it"
            " in DOCKER_HOST, or unset LEADERQ_SERVERS to run the servers from jars"
        ) from exc
    try:
        return str(client.host())
    finally:
        client.client.close()


class ContainerServer(OwnServer):
    """One container, which listens for clients on ``inner_port``.

    Peers reach each other by their names in a ``network``.
    """

    image: str
    command: str
    inner_port: int
    network: Any = None

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._container: Any = None

    @abstractmethod
    def _environment(self) -> Mapping[str, str]:
        """The environment that configures the image."""

    @property
    def alive(self) -> bool:
        return self._state() in ("running", "paused")

    @property
    def log_paths(self) -> Sequence[Path]:
        try:
            if self._state() == "absent":
                return []
            with docker_errors(f"reading the log of {self.name}"):
                log = self._docker().logs()
        except ServerFailed:
            return []  # the engine is gone; whoever collects logs has a failure to report already
        if self._scratch is None:
            self._scratch = ScratchFolder(self.name)
        path = self._scratch.path / f"{self.name}.log"
        path.write_bytes(log)
        return [path]

    def kill(self) -> None:
        if self.alive:
            with docker_errors(f"killing {self.name}"):
                self._docker().kill()
                self._docker().wait(timeout=_KILL_TIMEOUT_S)

    def freeze(self) -> None:
        if self._state() == "running":
            with docker_errors(f"pausing {self.name}"):
                self._docker().pause()

    def thaw(self) -> None:
        if self._state() == "paused":
            with docker_errors(f"unpausing {self.name}"):
                self._docker().unpause()

    def _launch(self) -> None:
        what = f"{self.what} ({self.name}, {self.image})"
        try:
            if self._container is None:
                self._make()
            else:
                with docker_errors(f"starting {self.name} again"):
                    self._docker().start()
            wait_until_serving(what, self._answers, self._problem)
        except ServerFailed as exc:
            tail = "\n".join(log_tail(path) for path in self.log_paths)
            raise ServerFailed(f"{exc}; the end of its log:\n{tail}" if tail else str(exc)) from exc

    def _make(self) -> None:
        host = engine_host()
        is_near = host == "localhost"
        self._host = HOST if is_near else host
        from testcontainers.core.container import DockerContainer

        with docker_errors(f"starting a container of {self.image}"):
            container: Any = DockerContainer(self.image)
            # with_bind_ports would publish it on all interfaces, to everyone who reaches this host.
            container.ports[str(self.inner_port)] = (HOST, self.port) if is_near else self.port
            for variable, value in self._environment().items():
                container.with_env(variable, value)
            if self.network is not None:
                container.with_network(self.network).with_network_aliases(self.name)
                again = f"printf '{_NAMES_SETTINGS}' >{_NAMES_FILE} && exec {self.command}"
                container.with_kwargs(entrypoint=["bash", "-c", again])
            self._container = container
            with _starting:
                container.start()

    def _end(self, *, keep_data: bool) -> None:
        if not keep_data:
            self._discard()
            return
        self.thaw()
        if self._state() != "absent":
            with docker_errors(f"stopping {self.name}"):
                self._docker().stop(timeout=_GRACE_S)

    def _discard(self) -> None:
        if self._container is None:
            return
        from docker.errors import NotFound

        with docker_errors(f"removing {self.name}"), contextlib.suppress(NotFound):
            self._container.stop()
        self._container = None

    def _docker(self) -> Any:
        return self._container.get_wrapped_container()

    def _state(self) -> str:
        """The engine's word for the state of the container; ``absent`` if there is none, or it was
        removed.
        """
        if self._container is None:
            return "absent"
        from docker.errors import NotFound
        from testcontainers.core.exceptions import ContainerStartException

        with docker_errors(f"looking at {self.name}"):
            try:
                container = self._docker()
                if container is None:  # as older releases of testcontainers say it
                    return "absent"
                container.reload()
            except (NotFound, ContainerStartException):
                return "absent"
            return str(container.status)

    def _problem(self) -> str | None:
        state = self._state()
        return f"its container is {state}" if state in ("exited", "dead", "absent") else None


# The name of a member resolves only while its container runs, and Java would remember for 10 s that
# it did not: members that start together, or come back, would not find each other for so long. Only
# a file can say otherwise, and the images have none to mount.
_NAMES_FILE: Final = "/tmp/names.security"
_NAMES_OPTION: Final = f"-Djava.security.properties={_NAMES_FILE}"
_NAMES_SETTINGS: Final = r"networkaddress.cache.ttl=1\nnetworkaddress.cache.negative.ttl=0\n"


class ZooKeeperContainer(AskedServer, ContainerServer):
    """One ZooKeeper server in a container; the options are those of
    :class:`~leaderq.testing.ZooKeeperServer`.
    """

    what = "ZooKeeper"
    image = "zookeeper:3.9.5"
    command = "/docker-entrypoint.sh zkServer.sh start-foreground"
    inner_port = 2181

    def __init__(
        self, *, settings: Mapping[str, str] | None = None, name: str = "zookeeper"
    ) -> None:
        super().__init__(name)
        self._settings = {**SETTINGS, **(settings or {})}

    def _environment(self) -> Mapping[str, str]:
        environment = {
            "ZOO_TICK_TIME": str(TICK_MS),
            "ZOO_MAX_CLIENT_CNXNS": "0",
            "ZOO_ADMINSERVER_ENABLED": "false",
            "ZOO_4LW_COMMANDS_WHITELIST": "*",
            "ZOO_CFG_EXTRA": " ".join(f"{key}={value}" for key, value in self._settings.items()),
            "ZK_SERVER_HEAP": "256",
            "SERVER_JVMFLAGS": " ".join(QUICK_START),
        }
        if not self.is_alone:
            environment["SERVER_JVMFLAGS"] += f" {_NAMES_OPTION}"
            peers = [f"server.{one.number}={one.name}:2888:3888;2181" for one in self.peers]
            environment |= {"ZOO_MY_ID": str(self.number), "ZOO_SERVERS": " ".join(peers)}
            environment |= {"ZOO_INIT_LIMIT": "20", "ZOO_SYNC_LIMIT": "10"}
        return environment


class KafkaContainer(ContainerServer):
    """One Kafka broker in a container; ``properties`` are as for
    :class:`~leaderq.testing.kafka_server.KafkaBroker`.
    """

    what = "Kafka"
    image = "apache/kafka:4.3.1"
    command = "/etc/kafka/docker/run"
    inner_port = 9092

    def __init__(self, *, properties: Mapping[str, str] | None = None, name: str = "kafka") -> None:
        super().__init__(name)
        self._properties = dict(properties or {})
        self.cluster_id = new_id()

    def _answers(self) -> bool:
        return registered_brokers(self._host, self.port) >= len(self.peers)

    def _environment(self) -> Mapping[str, str]:
        hosts = ["localhost"] if self.is_alone else [peer.name for peer in self.peers]
        ports = {"PLAINTEXT": 9092, "INTERNAL": 19092, "CONTROLLER": 9093}
        # Clients come through the port of the host, brokers through the network of the containers.
        properties = node_properties(
            self.number,
            [f"{host}:9093" for host in hosts],
            {name: f"0.0.0.0:{port}" for name, port in ports.items()},
            {"PLAINTEXT": self.address, "INTERNAL": f"{hosts[self.number - 1]}:19092"},
            between="INTERNAL",
        )
        java = {"KAFKA_HEAP_OPTS": "-Xmx512m", "KAFKA_JVM_PERFORMANCE_OPTS": " ".join(QUICK_START)}
        if not self.is_alone:
            java["KAFKA_OPTS"] = _NAMES_OPTION
        return {
            "CLUSTER_ID": self.peers[0].cluster_id,
            **java,
            **{_variable(key): value for key, value in (properties | self._properties).items()},
        }


class _ContainerGroup(PeerGroup[C]):
    """Containers in a network of their own, which ``start`` makes and ``stop`` removes."""

    _network: Any = None

    def prepare(self) -> None:
        if self._network is None:
            engine_host()
            from testcontainers.core.network import Network

            with docker_errors(f"making a network for {self.what}"):
                self._network = Network().create()
        for member in self.members:
            member.network = self._network

    def stop(self, *, keep_data: bool = False) -> None:
        super().stop(keep_data=keep_data)
        if self._network is not None and not keep_data:
            with docker_errors(f"removing the network of {self.what}"):
                self._network.remove()
            self._network = None


class ZooKeeperContainerEnsemble(_ContainerGroup[ZooKeeperContainer], LedGroup[ZooKeeperContainer]):
    """``size`` ZooKeeper containers that elect a leader among them."""

    what = "a ZooKeeper ensemble"
    kind = ZooKeeperContainer


class KafkaContainerCluster(_ContainerGroup[KafkaContainer]):
    """``size`` Kafka containers in one cluster."""

    what = "a Kafka cluster"
    kind = KafkaContainer


def _variable(key: str) -> str:
    """The image's name for the property ``key``: ``_`` becomes ``__``, ``-`` becomes ``___``, ``.``
    becomes ``_``.
    """
    return "KAFKA_" + key.replace("_", "__").replace("-", "___").replace(".", "_").upper()
