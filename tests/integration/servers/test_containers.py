"""Servers in containers, on a real engine; run with ``LEADERQ_SERVERS=docker``, where the engine
and the images must be there.

Without images to pull: ``python tests/containers/standins`` builds what stands in for them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from leaderq.errors import ServerFailed
from leaderq.testing import eventually
from leaderq.testing.containers import (
    KafkaContainer,
    KafkaContainerCluster,
    ZooKeeperContainer,
    ZooKeeperContainerEnsemble,
)
from leaderq.zookeeper import connect

pytestmark = pytest.mark.skipif(
    os.environ.get("LEADERQ_SERVERS") != "docker",
    reason="on a Docker engine: LEADERQ_SERVERS=docker",
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    """The engine's client."""
    import docker

    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def server() -> Iterator[ZooKeeperContainer]:
    with ZooKeeperContainer() as server:
        yield server


def container_of(server: Any) -> Any:
    return server._container.get_wrapped_container()


def write(address: str, path: str, data: bytes) -> None:
    with connect(address, timeout_s=30.0) as session:
        session.ensure_path(path)
        session.set(path, data)


def read(address: str, path: str) -> bytes:
    with connect(address, timeout_s=30.0) as session:
        return session.get(path)[0]


def test_a_killed_container_comes_back_with_its_data_under_its_address(
    server: ZooKeeperContainer,
) -> None:
    write(server.address, "/kept", b"1")
    address = server.address
    server.kill()
    assert not server.alive
    server.start()
    assert server.address == address
    assert read(address, "/kept") == b"1"
    server.restart()
    assert read(address, "/kept") == b"1"


def test_a_frozen_container_is_silent_and_can_be_thawed_killed_and_healed(
    server: ZooKeeperContainer,
) -> None:
    server.freeze()
    assert server.alive
    assert server.mode == ""
    server.thaw()
    eventually(lambda: server.mode == "standalone")
    server.freeze()
    server.kill()
    assert not server.alive
    server.heal()
    assert eventually(lambda: server.ask("ruok")) == "imok"
    server.freeze()
    server.heal()
    assert eventually(lambda: server.ask("ruok")) == "imok"


def test_the_port_is_published_on_the_loopback_interface_only(server: ZooKeeperContainer) -> None:
    container = container_of(server)
    container.reload()
    published = [
        binding["HostIp"] for bindings in container.ports.values() for binding in bindings or []
    ]
    assert published == ["127.0.0.1"]


def test_a_container_that_someone_else_removed_is_down_and_can_be_stopped(
    server: ZooKeeperContainer,
) -> None:
    container_of(server).remove(force=True, v=True)
    assert not server.alive
    assert server.log_paths == []
    server.kill()
    server.stop()
    server.start()
    assert eventually(lambda: server.ask("ruok")) == "imok"


def test_a_stop_leaves_no_container_volume_or_network(engine: Any) -> None:
    with ZooKeeperContainer() as server:
        container = container_of(server)
        volumes = [mount["Name"] for mount in container.attrs["Mounts"]]
        assert volumes, "the image has volumes"
    assert container.id not in [found.id for found in engine.containers.list(all=True)]
    assert not {volume.name for volume in engine.volumes.list()} & set(volumes)


def test_an_image_that_cannot_be_had_is_named_and_nothing_stays() -> None:
    server = ZooKeeperContainer()
    server.image = "leaderq.invalid/nothing:0"
    with pytest.raises(ServerFailed, match=r"leaderq\.invalid/nothing:0"):
        server.start()
    assert not server.alive
    assert server.log_paths == []


def test_a_broker_that_cannot_start_says_why_with_its_log() -> None:
    broker = KafkaContainer(properties={"num.io.threads": "many"})
    with pytest.raises(ServerFailed, match=r"(?s)its container is exited.*num\.io\.threads"):
        broker.start()
    assert not broker.alive


def test_a_served_server_that_fails_to_come_back_keeps_its_data(
    server: ZooKeeperContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(server.address, "/kept", b"1")
    server.kill()
    with monkeypatch.context() as patched:
        patched.setattr(server, "_answers", lambda: False)
        patched.setattr(server, "_problem", lambda: "it was made to fail")
        with pytest.raises(ServerFailed, match="it was made to fail"):
            server.start()
    assert not server.alive
    server.start()
    assert read(server.address, "/kept") == b"1"


def test_an_ensemble_goes_on_without_its_leader_and_takes_it_back(engine: Any) -> None:
    networks = {network.id for network in engine.networks.list()}
    with ZooKeeperContainerEnsemble() as ensemble:
        first = ensemble.leader
        write(ensemble.address, "/kept", b"1")
        first.kill()
        second = ensemble.leader
        assert second is not first
        assert read(second.address, "/kept") == b"1"
        first.start()
        eventually(
            lambda: len(ensemble.followers) == 2, timeout_s=30, message="the former leader follows"
        )
    assert {network.id for network in engine.networks.list()} == networks


def test_a_cluster_of_brokers_takes_a_killed_one_back() -> None:
    with KafkaContainerCluster() as cluster:
        cluster.members[0].kill()
        assert not cluster.alive
        cluster.members[0].start()
        assert cluster.alive


_PAIR = """
import sys, threading
from leaderq.testing import ServerPair
# Both first containers at once, and with them the reaper.
pair = ServerPair(progress=lambda line: None).start()
containers = [server._container for server in (pair.zookeeper, pair.kafka)]
print(*(container.get_wrapped_container().id for container in containers), flush=True)
sys.stdin.read()
"""


# Killed and without the reaper: nobody is left to remove them, as container_server.py says.
@pytest.mark.parametrize(("end", "reaper"), [("exit", True), ("exit", False), ("killed", True)])
def test_containers_do_not_outlive_their_process(engine: Any, end: str, reaper: bool) -> None:
    environment = {
        **os.environ,
        "RYUK_RECONNECTION_TIMEOUT": "1s",
        "TESTCONTAINERS_RYUK_DISABLED": str(not reaper).lower(),
    }
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", _PAIR], env=environment, **pipes) as process:
        assert process.stdout is not None
        ids = set(process.stdout.readline().split())
        assert len(ids) == 2
        assert ids <= {container.id for container in engine.containers.list()}
        if end == "killed":
            process.send_signal(signal.SIGKILL)
    eventually(
        lambda: not ids & {container.id for container in engine.containers.list(all=True)},
        timeout_s=60,
        interval_s=0.3,
        message="the containers are gone",
    )
