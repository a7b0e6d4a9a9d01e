from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from kazoo.client import KazooClient

from leaderq.testing import FaultProxy
from leaderq.zookeeper import Session, connect

Open = Callable[..., Session]


@pytest.fixture
def address(zookeeper_server, znode_root) -> str:
    return zookeeper_server.address + znode_root


@pytest.fixture
def proxy(zookeeper_server, fault_proxy) -> FaultProxy:
    return fault_proxy(zookeeper_server.address)


@pytest.fixture
def opened(address) -> Iterator[Open]:
    """``connect``, by default to the test's own root; all are closed after the test. A busy machine
    may be slow.
    """
    with ExitStack() as stack:

        def open_one(where: str = address, **options: Any) -> Session:
            session = connect(where, **{"connect_timeout_s": 60.0, **options})
            stack.callback(session.close, timeout_s=2.0)
            return session

        yield open_one


@pytest.fixture
def kazoo(address, session) -> Iterator[KazooClient]:
    """kazoo's own client there, for what leaderq does not do: ACLs."""
    client = KazooClient(address)
    client.start()
    yield client
    client.stop()
    client.close()


@pytest.fixture
def session(opened) -> Session:
    """One of these, of a time-out that is longer than anything here may be without a processor."""
    return opened(timeout_s=30.0)
