from __future__ import annotations

import os
import subprocess
import sys

import pytest

from leaderq.errors import ConfigurationError
from leaderq.testing import provision
from leaderq.testing.fault_proxy import FaultProxy
from leaderq.testing.ports import lease_port


def test_a_given_server_is_used_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADERQ_ZOOKEEPER", "zk.example:2181")
    with provision.provided("ZooKeeperServer") as server:
        assert server.address == "zk.example:2181"
        with pytest.raises(ConfigurationError, match="LEADERQ_ZOOKEEPER"):
            server.kill()


def test_an_unknown_kind_of_servers_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADERQ_SERVERS", "podman")
    with pytest.raises(ConfigurationError, match=r"'podman'.*'jars' or 'docker'"):
        provision.provided("KafkaBroker")


def test_containers_without_an_engine_are_a_missing_piece() -> None:
    pytest.importorskip("testcontainers.core.container")
    # In a process of its own: the docker library leaves sockets open when it finds no engine.
    script = """
from leaderq.errors import MissingPiece
from leaderq.testing import provision
for kind in ("ZooKeeperServer", "ZooKeeperEnsemble", "KafkaBroker", "KafkaCluster"):
    server = provision.provided(kind)
    try:
        server.start()
    except MissingPiece as exc:
        print(server.alive, exc)
    server.stop()
"""
    environment = {
        **os.environ,
        "LEADERQ_SERVERS": "docker",
        "DOCKER_HOST": "unix:///nowhere/docker.sock",
    }
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, timeout=60
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 4, done.stderr
    assert all(
        line.startswith("False LEADERQ_SERVERS is 'docker', and no Docker engine answers")
        for line in lines
    )


@pytest.mark.parametrize("upstream", ["", "host", "host:port", "a:1,b:2"])
def test_a_proxy_before_no_single_server_is_refused(upstream: str) -> None:
    with pytest.raises(ConfigurationError, match="host:port"):
        FaultProxy(upstream)


def test_the_usual_ports_are_wanted_where_they_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    leased, other = lease_port(), lease_port()
    ports = {"ZooKeeperServer": leased.number, "KafkaBroker": other.number}
    monkeypatch.setattr(provision, "_USUAL_PORTS", ports)
    for name in ("LEADERQ_ZOOKEEPER", "LEADERQ_KAFKA", "LEADERQ_SERVERS"):
        monkeypatch.delenv(name, raising=False)
    other.release()
    told: list[str] = []
    assert provision.usual_port("ZooKeeperServer", told.append) == {}
    assert told == [f"port {leased.number} is taken, so ZooKeeper gets another"]
    assert provision.usual_port("KafkaBroker", told.append) == {"port": other.number}
    monkeypatch.setenv("LEADERQ_KAFKA", "elsewhere:9092")
    assert provision.usual_port("KafkaBroker", told.append) == {}
    assert len(told) == 1
    leased.release()
