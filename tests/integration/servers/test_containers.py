"""Servers in containers, on a real engine; run with ``LEADERQ_SERVERS=docker``, where the engine
and the images must be there.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest

from leaderq.testing import eventually
from leaderq.testing.containers import (
    ZooKeeperContainer,
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


def test_a_stop_leaves_no_container_volume_or_network(engine: Any) -> None:
    with ZooKeeperContainer() as server:
        container = container_of(server)
        volumes = [mount["Name"] for mount in container.attrs["Mounts"]]
        assert volumes, "the image has volumes"
    assert container.id not in [found.id for found in engine.containers.list(all=True)]
    assert not {volume.name for volume in engine.volumes.list()} & set(volumes)
