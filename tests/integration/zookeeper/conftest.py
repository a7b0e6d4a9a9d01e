"""Sessions on the real server, each test below a root of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leaderq.testing import ZooKeeperServer
from leaderq.zookeeper import Session, SessionState, connect

Connect = Callable[..., Session]


class Heard(list[SessionState]):
    """The states a session announced since it was made."""

    def __init__(self, session: Session) -> None:
        super().__init__()
        session.add_listener(self.append)


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
    """A session whose chroot is the test's own root."""
    return opened(zookeeper_server.address + znode_root, timeout_s=4.0)


@pytest.fixture(scope="module")
def own_server() -> Iterator[ZooKeeperServer]:
    """A server that the tests of one module may freeze, kill and restart."""
    with ZooKeeperServer() as server:
        yield server


@pytest.fixture
def frozen(own_server: ZooKeeperServer) -> Iterator[Callable[[], None]]:
    """Freezes ``own_server``; thawed after the test."""
    yield own_server.freeze
    own_server.thaw()
