"""Sessions on the real server, each test below a root of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leaderq.testing import ZooKeeperServer
from leaderq.testing.ports import lease_port
from leaderq.zookeeper import Session, connect

Connect = Callable[..., Session]


@pytest.fixture
def opened() -> Iterator[Connect]:
    """``connect``, with everything it opened closed after the test."""
    made: list[Session] = []

    def open_one(address: str, **options: Any) -> Session:
        session = connect(address, **options)
        made.append(session)
        return session

    yield open_one
    for session in made:
        session.close(timeout_s=2.0)


@pytest.fixture
def session(zookeeper_server: ZooKeeperServer, znode_root: str, opened: Connect) -> Session:
    """A session whose chroot is the test's own root.

    Its time-out is long, so that it stays connected although the server or this process gets no processor for a while.
    """
    return opened(zookeeper_server.address + znode_root, timeout_s=30.0)


@pytest.fixture
def closed_port() -> Iterator[str]:
    """An address where nobody listens."""
    port = lease_port()
    yield port.address
    port.release()
