"""ZooKeeper and Kafka in containers: the official images, pinned, single or as a group.

A server in a container, through testcontainers; the same life as one from jars
(``LEADERQ_SERVERS=docker``).

Each server has its own container with a fixed port of the host, so that it comes back under the
same address; kill is ``docker kill``, freeze is ``docker pause``. The port is published on the
loopback interface only, unless the engine is on another host. The data live in the container and
its volumes: ``stop`` removes them. The engine is authoritative for what state a container is in; it
is asked each time.

Who cleans up: ``stop``; at the exit of this process :mod:`leaderq.testing.server`; after a process
that was killed testcontainers' reaper, a container of its own (``testcontainers/ryuk``) that
notices the end of the connection. With ``TESTCONTAINERS_RYUK_DISABLED=true`` (the image cannot be
had, or the engine's socket must not be given to a container) there is none, and only a process that
a signal killed (SIGTERM too, if nothing handles it) leaves its containers behind; they bear the
label ``org.testcontainers=true``.
"""

from __future__ import annotations

import contextlib
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from leaderq.errors import MissingPiece, ServerFailed
from leaderq.testing.java_server import QUICK_START, ScratchFolder
from leaderq.testing.kafka_server import SMALL_BROKER, new_id, registered_brokers, replication
from leaderq.testing.ports import HOST, LeasedPort, lease_port
from leaderq.testing.server import (
    M,
    Server,
    ServerGroup,
    forget,
    log_tail,
    remember,
    wait_until_serving,
)
from leaderq.testing.zookeeper_server import AskedServer, LedGroup, opens_session, session_settings

_GRACE_S: Final = 10
_KILL_TIMEOUT_S: Final = 30
# testcontainers makes its reaper with the first container, and two threads that start one each
# would make two of one name.
_starting: Final = threading.Lock()

C = TypeVar("C", bound="ContainerServer")


@contextlib.contextmanager
def docker_errors(doing: str) -> Iterator[None]:
    """Let the errors of the engine, of its client and of testcontainers be
    :class:`~leaderq.errors.ServerFailed`.
    """
    try:
        from docker.errors import DockerException  # type: ignore[import-untyped]
        from testcontainers.core.exceptions import (
            ContainerConnectException,
            ContainerStartException,
        )
    except ImportError as exc:
        raise MissingPiece(
            "LEADERQ_SERVERS is 'docker'; to use it: pip install 'leaderq[docker]'"
        ) from exc
    try:
        yield
    except (DockerException, ContainerStartException, ContainerConnectException, OSError) as exc:
        raise ServerFailed(f"{doing} failed: {exc}") from exc


def engine_host() -> str:
    """The host of the Docker engine, as clients of its published ports name it; ``localhost`` if it
    is this one.

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


class ContainerServer(Server):
    """One container, listening for clients on ``inner_port``."""

    image: str
    inner_port: int

    def __init__(
        self, *, name: str, alias: str = "localhost", network: Callable[[], Any] | None = None
    ) -> None:
        self.name = name
        self._alias = alias
        self._network = network
        self._port: LeasedPort | None = None
        self._scratch: ScratchFolder | None = None
        self._container: Any = None
        self._host = HOST
        self._has_served = False

    @abstractmethod
    def _environment(self) -> Mapping[str, str]:
        """The environment that configures the image."""

    def _entry_point(self) -> list[str] | None:
        """What to run in place of the image's own entry point and command; ``None``: those."""
        return None

    @abstractmethod
    def _answers(self) -> bool:
        """Whether the server answers a real request now."""

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    @property
    def port(self) -> int:
        """The port on the host; the same over restarts."""
        if self._port is None:
            self._port = lease_port()
        return self._port.number

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

    def start(self: C) -> C:
        if self.alive:
            return self
        try:
            self._launch()
            wait_until_serving(
                f"{self.what} ({self.name}, {self.image})", self._answers, self._problem
            )
        except ServerFailed as exc:
            tail = "\n".join(log_tail(path) for path in self.log_paths)
            self._give_up()
            raise ServerFailed(f"{exc}; the end of its log:\n{tail}" if tail else str(exc)) from exc
        except BaseException:
            self._give_up()
            raise
        self._has_served = True
        return self

    def stop(self, *, keep_data: bool = False) -> None:
        if keep_data:
            self.thaw()
            if self._state() != "absent":
                with docker_errors(f"stopping {self.name}"):
                    self._docker().stop(timeout=_GRACE_S)
            return
        if self._container is not None:
            self._discard()
        self._has_served = False
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None
        if self._port is not None:
            self._port.release()
            self._port = None
        forget(self)

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

    def heal(self) -> None:
        self.thaw()
        self.start()

    def _launch(self) -> None:
        if self._container is not None:
            with docker_errors(f"starting {self.name} again"):
                self._docker().start()
            return
        host = engine_host()
        is_near = host == "localhost"
        self._host = HOST if is_near else host
        from testcontainers.core.container import DockerContainer

        remember(self)
        with docker_errors(f"starting a container of {self.image}"):
            container: Any = DockerContainer(self.image)
            # with_bind_ports would publish it on all interfaces, for whoever reaches this host.
            container.ports[str(self.inner_port)] = (HOST, self.port) if is_near else self.port
            for variable, value in self._environment().items():
                container.with_env(variable, value)
            if self._network is not None:
                container.with_network(self._network()).with_network_aliases(self._alias)
            if (entry_point := self._entry_point()) is not None:
                container.with_kwargs(entrypoint=entry_point)
            self._container = container
            with _starting:
                container.start()

    def _give_up(self) -> None:
        """As after a start that failed: a server that has served keeps its data, for another
        try.
        """
        if self._has_served:
            self.kill()
        else:
            self.stop()

    def _discard(self) -> None:
        from docker.errors import NotFound

        with docker_errors(f"removing {self.name}"), contextlib.suppress(NotFound):
            self._container.stop()
        self._container = None

    def _docker(self) -> Any:
        return self._container.get_wrapped_container()

    def _state(self) -> str:
        """What the engine says of it; ``absent`` if there is none, or someone else has removed
        it.
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


class ZooKeeperContainer(ContainerServer, AskedServer):
    """One ZooKeeper server; ``tick_ms`` and ``settings`` as of
    :class:`~leaderq.testing.zookeeper_server.ZooKeeperServer`.
    """

    what = "ZooKeeper"
    image = "zookeeper:3.9.5"
    inner_port = 2181

    def __init__(
        self,
        *,
        tick_ms: int = 500,
        settings: Mapping[str, str] | None = None,
        name: str = "zookeeper",
        **place: Any,
    ) -> None:
        super().__init__(name=name, **place)
        self.tick_ms = tick_ms
        self._settings = {**session_settings(tick_ms), **(settings or {})}
        self.members = 1
        self.number = 1

    def _answers(self) -> bool:
        return opens_session(self._host, self.port)

    def _environment(self) -> Mapping[str, str]:
        environment = {
            "ZOO_TICK_TIME": str(self.tick_ms),
            "ZOO_MAX_CLIENT_CNXNS": "0",
            "ZOO_ADMINSERVER_ENABLED": "false",
            "ZOO_4LW_COMMANDS_WHITELIST": "*",
            "ZOO_CFG_EXTRA": " ".join(f"{key}={value}" for key, value in self._settings.items()),
            "ZK_SERVER_HEAP": "256",
            "SERVER_JVMFLAGS": " ".join(QUICK_START),
        }
        if self.members > 1:
            environment["SERVER_JVMFLAGS"] += f" {_NAMES_OPTION}"
            peers = [
                f"server.{number}=zookeeper-{number}:2888:3888;2181"
                for number in range(1, self.members + 1)
            ]
            environment |= {"ZOO_MY_ID": str(self.number), "ZOO_SERVERS": " ".join(peers)}
            environment |= {"ZOO_INIT_LIMIT": "20", "ZOO_SYNC_LIMIT": "10"}
        return environment

    def _entry_point(self) -> list[str] | None:
        return (
            _looking_up_names_anew("/docker-entrypoint.sh zkServer.sh start-foreground")
            if self.members > 1
            else None
        )


class KafkaContainer(ContainerServer):
    """One Kafka broker; ``properties`` as of :class:`~leaderq.testing.kafka_server.KafkaBroker`."""

    what = "Kafka"
    image = "apache/kafka:4.3.1"
    inner_port = 9092

    def __init__(
        self, *, properties: Mapping[str, str] | None = None, name: str = "kafka", **place: Any
    ) -> None:
        super().__init__(name=name, **place)
        self._properties = dict(properties or {})
        self.members = 1
        self.number = 1
        self.cluster_id = new_id()

    def _answers(self) -> bool:
        return registered_brokers(self._host, self.port) >= self.members

    def _environment(self) -> Mapping[str, str]:
        hosts = [
            f"kafka-{number}" if self.members > 1 else "localhost"
            for number in range(1, self.members + 1)
        ]
        own = hosts[self.number - 1]
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(self.number),
            "controller.quorum.voters": ",".join(
                f"{number}@{host}:9093" for number, host in enumerate(hosts, start=1)
            ),
            "listeners": (
                "PLAINTEXT://0.0.0.0:9092,INTERNAL://0.0.0.0:19092,CONTROLLER://0.0.0.0:9093"
            ),
            # Clients come through the port of the host; the brokers reach each other in their own
            # network.
            "advertised.listeners": f"PLAINTEXT://{self.address},INTERNAL://{own}:19092",
            "listener.security.protocol.map": (
                "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
            ),
            "inter.broker.listener.name": "INTERNAL",
            "controller.listener.names": "CONTROLLER",
            **replication(self.members),
            **SMALL_BROKER,
            **self._properties,
        }
        java = {"KAFKA_HEAP_OPTS": "-Xmx512m", "KAFKA_JVM_PERFORMANCE_OPTS": " ".join(QUICK_START)}
        if self.members > 1:
            java["KAFKA_OPTS"] = _NAMES_OPTION
        return {
            "CLUSTER_ID": self.cluster_id,
            **java,
            **{_variable(key): value for key, value in properties.items()},
        }

    def _entry_point(self) -> list[str] | None:
        return _looking_up_names_anew("/etc/kafka/docker/run") if self.members > 1 else None


class _ContainerGroup(ServerGroup[M]):
    """Containers in a network of their own, which is made at ``start`` and removed at ``stop``."""

    def __init__(self, name: str, members: list[M]) -> None:
        super().__init__(name, members)
        self._network: Any = None

    def network(self) -> Any:
        """The network of the group."""
        return self._network

    def prepare(self) -> None:
        if self._network is None:
            engine_host()
            from testcontainers.core.network import Network

            with docker_errors(f"making a network for {self.what}"):
                self._network = Network().create()

    def stop(self, *, keep_data: bool = False) -> None:
        super().stop(keep_data=keep_data)
        if self._network is not None and not keep_data:
            with docker_errors(f"removing the network of {self.what}"):
                self._network.remove()
            self._network = None


class ZooKeeperContainerEnsemble(_ContainerGroup[ZooKeeperContainer], LedGroup[ZooKeeperContainer]):
    """``size`` ZooKeeper containers that elect a leader among them."""

    what = "a ZooKeeper ensemble"

    def __init__(self, size: int = 3, **options: Any) -> None:
        names = [f"zookeeper-{number}" for number in range(1, size + 1)]
        members = [
            ZooKeeperContainer(name=name, alias=name, network=self.network, **options)
            for name in names
        ]
        for number, member in enumerate(members, start=1):
            member.members, member.number = size, number
        super().__init__("zookeeper", members)


class KafkaContainerCluster(_ContainerGroup[KafkaContainer]):
    """``size`` Kafka containers in one cluster."""

    what = "a Kafka cluster"

    def __init__(self, size: int = 3, **options: Any) -> None:
        names = [f"kafka-{number}" for number in range(1, size + 1)]
        members = [
            KafkaContainer(name=name, alias=name, network=self.network, **options) for name in names
        ]
        for number, member in enumerate(members, start=1):
            member.members, member.number, member.cluster_id = size, number, members[0].cluster_id
        super().__init__("kafka", members)


def _looking_up_names_anew(command: str) -> list[str]:
    settings = r"networkaddress.cache.ttl=1\nnetworkaddress.cache.negative.ttl=0\n"
    return ["bash", "-c", f"printf '{settings}' >{_NAMES_FILE} && exec {command}"]


def _variable(key: str) -> str:
    """The image's name for a property: ``_`` for ``.``, and one more of them for what is one
    already.
    """
    return "KAFKA_" + key.replace("_", "__").replace("-", "___").replace(".", "_").upper()
