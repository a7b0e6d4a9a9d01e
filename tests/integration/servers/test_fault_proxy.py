"""Each fault of the proxy, with a real ZooKeeper connection through it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from leaderq.testing import FaultProxy, ZooKeeperServer, eventually

SESSION_S = 30.0
"""Longer than anything here may be without a processor: kazoo drops a connection that is silent for
a third of it.
"""


@pytest.fixture
def behind(proxy: FaultProxy) -> Iterator[KazooClient]:
    with connected(proxy.address) as client:
        yield client


@pytest.fixture
def beside(zookeeper_server: ZooKeeperServer) -> Iterator[KazooClient]:
    """A client that no fault touches."""
    with connected(zookeeper_server.address) as client:
        yield client


@contextlib.contextmanager
def connected(address: str, session_s: float = SESSION_S) -> Iterator[KazooClient]:
    # kazoo's own pauses grow up to an hour
    again = {"max_tries": -1, "delay": 0.1, "max_delay": 1.0}
    client = KazooClient(address, timeout=session_s, connection_retry=again)
    client.start(timeout=30)
    try:
        yield client
    finally:
        client.stop()
        client.close()


def opcode(request: bytes) -> int:
    return int.from_bytes(request[4:8], "big")


def is_create(request: bytes) -> bool:
    return opcode(request) in (1, 15)  # create and create2


def test_a_cut_is_a_reset_and_not_an_end(proxy: FaultProxy) -> None:
    with socket.create_connection(tuple(_split(proxy.address)), timeout=5) as plain:
        eventually(lambda: proxy.connections == 1)
        proxy.cut()
        with pytest.raises(ConnectionResetError):
            plain.recv(1)


def test_the_reply_to_a_create_is_lost_and_the_node_is_there(
    proxy: FaultProxy, behind: KazooClient, beside: KazooClient, znode_root: str
) -> None:
    proxy.drop_reply_to(is_create)
    assert behind.exists(znode_root) is None  # other replies pass
    with pytest.raises(ConnectionLoss):
        behind.create(znode_root)
    assert proxy.dropped == 1
    assert beside.exists(znode_root)
    eventually(lambda: behind.exists(znode_root), timeout_s=30)


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
