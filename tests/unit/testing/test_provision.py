from __future__ import annotations

import os
import subprocess
import sys

import pytest

from leaderq.errors import ConfigurationError
from leaderq.testing import provision
from leaderq.testing.fault_proxy import FaultProxy
from leaderq.testing.java_server import JavaServer
from leaderq.testing.ports import lease_port


def test_a_given_server_is_used_and_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADERQ_ZOOKEEPER", "zk.example:2181")
    with provision.zookeeper_server() as server:
        assert server.address == "zk.example:2181"
        with pytest.raises(ConfigurationError, match="LEADERQ_ZOOKEEPER"):
            server.kill()


def test_an_unknown_kind_of_servers_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEADERQ_SERVERS", "podman")
    with pytest.raises(ConfigurationError, match=r"'podman'.*'jars' or 'docker'"):
        provision.kafka_server()


def test_containers_without_an_engine_are_a_missing_piece() -> None:
    pytest.importorskip("testcontainers.core.container")
    # In a process of its own: the docker library leaves sockets open when it finds no engine.
    script = """
from leaderq.errors import MissingPiece
from leaderq.testing import provision
for kind in ("zookeeper_server", "zookeeper_ensemble", "kafka_server", "kafka_cluster"):
    server = getattr(provision, kind)()
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
    monkeypatch.setattr(
        provision, "_USUAL_PORTS", {"ZooKeeper": leased.number, "Kafka": other.number}
    )
    for name in ("LEADERQ_ZOOKEEPER", "LEADERQ_KAFKA", "LEADERQ_SERVERS"):
        monkeypatch.delenv(name, raising=False)
    other.release()
    assert provision._at("ZooKeeper", usual_ports=True) == {}
    assert provision._at("Kafka", usual_ports=True) == {"port": other.number}
    assert provision._at("Kafka", usual_ports=False) == {}
    monkeypatch.setenv("LEADERQ_KAFKA", "elsewhere:9092")
    assert provision._at("Kafka", usual_ports=True) == {}
    leased.release()


@pytest.mark.parametrize("free", [True, False])
def test_the_usual_ports_are_used_where_they_are_free(
    monkeypatch: pytest.MonkeyPatch, free: bool
) -> None:
    for variable in ("LEADERQ_ZOOKEEPER", "LEADERQ_KAFKA", "LEADERQ_SERVERS"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setattr(provision, "can_be_leased", lambda _port: free)
    pair = provision.ServerPair(usual_ports=True)
    assert isinstance(pair.zookeeper, JavaServer)
    assert isinstance(pair.kafka, JavaServer)
    wanted = [server._wanted_port for server in (pair.zookeeper, pair.kafka)]
    assert wanted == ([2181, 9092] if free else [None, None])
