"""Sessions for tests that talk to ZooKeeper, each test below a root of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from leaderq.testing import FaultProxy, ZooKeeperServer
from leaderq.zookeeper import Session, connect

Open = Callable[..., Session]


@pytest.fixture
def address(zookeeper_server: ZooKeeperServer, znode_root: str) -> str:
    """The servers with the test's own root."""
    return zookeeper_server.address + znode_root


@pytest.fixture
def proxy(
    zookeeper_server: ZooKeeperServer, fault_proxy: Callable[[str], FaultProxy]
) -> FaultProxy:
    """A way to the server on which faults can be made."""
    return fault_proxy(zookeeper_server.address)


@pytest.fixture
def opened(zookeeper_server: ZooKeeperServer, znode_root: str) -> Iterator[Open]:
    """Sessions whose chroot is the test's own root, by default straight on the server; closed after
    the test.
    """
    made: list[Session] = []

    def open_one(address: str | None = None, timeout_s: float = 10.0) -> Session:
        made.append(
            connect((address or zookeeper_server.address) + znode_root, timeout_s=timeout_s)
        )
        return made[-1]

    yield open_one
    for session in made:
        session.close(timeout_s=2.0)


@pytest.fixture
def session(opened: Open) -> Session:
    """One of these."""
    return opened()
