"""Sessions for the tests of Dyno queues, each test below a root of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from leaderq.zookeeper import Session, connect


@pytest.fixture
def opened(zookeeper_server, znode_root: str) -> Iterator[Callable[..., Session]]:
    sessions: list[Session] = []

    def open_one(**options: object) -> Session:
        sessions.append(connect(f"{zookeeper_server.address}{znode_root}", **options))
        return sessions[-1]

    yield open_one
    for one in sessions:
        one.close()


@pytest.fixture
def session(opened: Callable[..., Session]) -> Session:
    return opened()
