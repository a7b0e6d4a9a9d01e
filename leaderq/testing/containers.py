"""ZooKeeper and Kafka in containers: the official images, pinned, single or as a group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from leaderq.testing.container_server import ContainerServer, docker_errors, engine_host
from leaderq.testing.java_server import QUICK_START
from leaderq.testing.kafka_server import SMALL_BROKER, replication
from leaderq.testing.kafka_storage import new_id
from leaderq.testing.kafka_wire import registered_brokers
from leaderq.testing.server_group import M, ServerGroup
from leaderq.testing.zookeeper_mode import AskedServer, LedGroup
from leaderq.testing.zookeeper_wire import opens_session

# The name of a member resolves only while its container runs, and Java would remember for 10 s that it did not: members that start
# together, or come back, would not find each other for so long. Only a file can say otherwise, and the images have none to mount.
_NAMES_FILE: Final = "/tmp/names.security"
_NAMES_OPTION: Final = f"-Djava.security.properties={_NAMES_FILE}"


class ZooKeeperContainer(ContainerServer, AskedServer):
    """One ZooKeeper server; ``tick_ms`` and ``settings`` as of :class:`~leaderq.testing.zookeeper_server.ZooKeeperServer`."""

    what = "ZooKeeper"
    image = "zookeeper:3.9.5"
    inner_port = 2181

    def __init__(
        self, *, tick_ms: int = 500, settings: Mapping[str, str] | None = None, name: str = "zookeeper", **place: Any
    ) -> None:
        super().__init__(name=name, **place)
        self.tick_ms = tick_ms
        self._settings = {
            "minSessionTimeout": str(min(1000, 2 * tick_ms)),
            "maxSessionTimeout": "60000",
            "extendedTypesEnabled": "true",
            **(settings or {}),
        }
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
            peers = [f"server.{number}=zookeeper-{number}:2888:3888;2181" for number in range(1, self.members + 1)]
            environment |= {"ZOO_MY_ID": str(self.number), "ZOO_SERVERS": " ".join(peers)}
            environment |= {"ZOO_INIT_LIMIT": "20", "ZOO_SYNC_LIMIT": "10"}
        return environment

    def _entry_point(self) -> list[str] | None:
        return _looking_up_names_anew("/docker-entrypoint.sh zkServer.sh start-foreground") if self.members > 1 else None


class KafkaContainer(ContainerServer):
    """One Kafka broker; ``properties`` as of :class:`~leaderq.testing.kafka_server.KafkaBroker`."""

    what = "Kafka"
    image = "apache/kafka:4.3.1"
    inner_port = 9092

    def __init__(self, *, properties: Mapping[str, str] | None = None, name: str = "kafka", **place: Any) -> None:
        super().__init__(name=name, **place)
        self._properties = dict(properties or {})
        self.members = 1
        self.number = 1
        self.cluster_id = new_id()

    def _answers(self) -> bool:
        return registered_brokers(self._host, self.port) >= self.members

    def _environment(self) -> Mapping[str, str]:
        hosts = [f"kafka-{number}" if self.members > 1 else "localhost" for number in range(1, self.members + 1)]
        own = hosts[self.number - 1]
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(self.number),
            "controller.quorum.voters": ",".join(f"{number}@{host}:9093" for number, host in enumerate(hosts, start=1)),
            "listeners": "PLAINTEXT://0.0.0.0:9092,INTERNAL://0.0.0.0:19092,CONTROLLER://0.0.0.0:9093",
            # Clients come through the port of the host; the brokers reach each other in their own network.
            "advertised.listeners": f"PLAINTEXT://{self.address},INTERNAL://{own}:19092",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "INTERNAL",
            "controller.listener.names": "CONTROLLER",
            **replication(self.members),
            **SMALL_BROKER,
            **self._properties,
        }
        java = {"KAFKA_HEAP_OPTS": "-Xmx512m", "KAFKA_JVM_PERFORMANCE_OPTS": " ".join(QUICK_START)}
        if self.members > 1:
            java["KAFKA_OPTS"] = _NAMES_OPTION
        return {"CLUSTER_ID": self.cluster_id, **java, **{_variable(key): value for key, value in properties.items()}}

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
        members = [ZooKeeperContainer(name=name, alias=name, network=self.network, **options) for name in names]
        for number, member in enumerate(members, start=1):
            member.members, member.number = size, number
        super().__init__("zookeeper", members)


class KafkaContainerCluster(_ContainerGroup[KafkaContainer]):
    """``size`` Kafka containers in one cluster."""

    what = "a Kafka cluster"

    def __init__(self, size: int = 3, **options: Any) -> None:
        names = [f"kafka-{number}" for number in range(1, size + 1)]
        members = [KafkaContainer(name=name, alias=name, network=self.network, **options) for name in names]
        for number, member in enumerate(members, start=1):
            member.members, member.number, member.cluster_id = size, number, members[0].cluster_id
        super().__init__("kafka", members)


def _looking_up_names_anew(command: str) -> list[str]:
    settings = r"networkaddress.cache.ttl=1\nnetworkaddress.cache.negative.ttl=0\n"
    return ["bash", "-c", f"printf '{settings}' >{_NAMES_FILE} && exec {command}"]


def _variable(key: str) -> str:
    """The image's name for a property: ``_`` for ``.``, and one more of them for what is one already."""
    return "KAFKA_" + key.replace("_", "__").replace("-", "___").replace(".", "_").upper()
