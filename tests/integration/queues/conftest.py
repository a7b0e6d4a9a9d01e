"""Sessions for the tests of queues, each test below a root of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leaderq.zookeeper import Session, connect

Open = Callable[..., Session]


@pytest.fixture
def opened(zookeeper_server: Any, znode_root: str) -> Iterator[Open]:
    """Sessions whose chroot is the test's own root, by default straight on the server; closed after the test."""
    made: list[Session] = []

    def open_one(address: str | None = None, timeout_s: float = 10.0) -> Session:
        made.append(connect((address or zookeeper_server.address) + znode_root, timeout_s=timeout_s))
        return made[-1]

    yield open_one
    for session in made:
        session.close(timeout_s=2.0)
