"""Each fault of the proxy, with a real ZooKeeper connection through it."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss

from leaderq.testing import FaultProxy, ZooKeeperServer, eventually
from leaderq.testing.fault_proxy import Direction

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


def is_watch_event(reply: bytes) -> bool:
    return reply[:4] == b"\xff\xff\xff\xff"


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


def test_a_watch_event_is_lost_and_the_connection_goes_on(
    proxy: FaultProxy, behind: KazooClient, beside: KazooClient, znode_root: str
) -> None:
    behind.create(znode_root)
    noticed: list[object] = []
    behind.get(znode_root, watch=noticed.append)
    proxy.drop_replies(is_watch_event, cut=False)
    beside.set(znode_root, b"1")
    assert behind.get(znode_root, watch=noticed.append)[0] == b"1"
    assert (proxy.dropped, noticed, proxy.connections) == (1, [], 1)
    beside.set(znode_root, b"2")
    eventually(lambda: len(noticed) == 1)


@pytest.mark.parametrize(("direction", "is_done"), [("to_server", False), ("to_client", True)])
def test_what_one_direction_swallows_is_lost_and_the_other_direction_goes_on(
    proxy: FaultProxy,
    behind: KazooClient,
    beside: KazooClient,
    znode_root: str,
    direction: Direction,
    is_done: bool,
) -> None:
    behind.create(znode_root, b"0")
    proxy.swallow_direction(direction)
    (link,) = proxy._links
    lane = link.client.drains if is_done else link.client.feeds
    lost = behind.set_async(znode_root, b"1")
    eventually(lambda: lane.has_lost, message="the proxy has swallowed the request, or the reply")
    if is_done:
        eventually(
            lambda: beside.get(znode_root)[0] == b"1", message="the server has heard the request"
        )
    proxy.heal()
    eventually(lost.ready, message="the connection that lost bytes is reset")
    with pytest.raises(ConnectionLoss):
        lost.get()
    eventually(lambda: behind.get(znode_root)[0] == (b"1" if is_done else b"0"), timeout_s=30)


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)
