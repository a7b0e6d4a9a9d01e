"""Sessions and coordinators for the tests of distributed coalescing, each test below a root of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from leaderq.coalescing.distributed import DistributedQueueCoordinator
from leaderq.testing import FaultProxy, ZooKeeperServer
from leaderq.zookeeper import Session, connect

Open = Callable[..., Session]
Make = Callable[..., DistributedQueueCoordinator]
ROOT = "/coalescing"


@pytest.fixture
def proxy(zookeeper_server: ZooKeeperServer, fault_proxy: Callable[[str], FaultProxy]) -> FaultProxy:
    """A way to the server on which faults can be made."""
    return fault_proxy(zookeeper_server.address)


@pytest.fixture
def opened(zookeeper_server: ZooKeeperServer, znode_root: str) -> Iterator[Open]:
    """Sessions whose chroot is the test's own root, by default straight on the server; closed after the test."""
    made: list[Session] = []

    def open_one(address: str | None = None, timeout_s: float = 10.0) -> Session:
        made.append(connect((address or zookeeper_server.address) + znode_root, timeout_s=timeout_s))
        return made[-1]

    yield open_one
    for session in made:
        session.close(timeout_s=2.0)


@pytest.fixture
def session(opened: Open) -> Session:
    return opened()


@pytest.fixture
def coordinator_of(opened: Open) -> Iterator[Make]:
    """Coordinators, each on a session of its own unless told otherwise; closed after the test."""
    made: list[DistributedQueueCoordinator] = []

    def make(session: Session | None = None, **options: float) -> DistributedQueueCoordinator:
        made.append(DistributedQueueCoordinator(session or opened(), ROOT, **options))
        return made[-1]

    yield make
    for one in made:
        one.close(timeout_s=0.5)
