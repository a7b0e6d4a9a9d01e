"""Sessions for the tests of queues, each test below a root of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leaderq.queues import QueueSharder, QueueSharderPolicies, SimpleDistributedQueue
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.testing import ZooKeeperServer
from leaderq.zookeeper import Session, connect

Make = Callable[..., QueueSharder[Any]]


@pytest.fixture
def places(znode_root: str) -> QueuePaths:
    """A queue and its locks, by their whole paths."""
    return QueuePaths(f"{znode_root}/q", f"{znode_root}/locks")


@pytest.fixture
def unrooted(zookeeper_server: ZooKeeperServer, places: QueuePaths) -> Iterator[Session]:
    """A session without a chroot, as an operator's, with the znodes of ``places`` made."""
    assert places.lock_path is not None
    with connect(zookeeper_server.address) as opened:
        opened.ensure_path(places.path)
        opened.ensure_path(places.lock_path)
        yield opened


@pytest.fixture
def sharder_of(session: Session) -> Iterator[Make]:
    """Sharders of simple queues at ``/jobs``, closed after the test."""
    made: list[QueueSharder[Any]] = []

    def make(
        by: Session | None = None,
        allocator: Any = SimpleDistributedQueue,
        *,
        id: str = "",
        **policies: Any,
    ) -> QueueSharder[Any]:
        chosen = QueueSharderPolicies(**{"threshold_check_s": 0.05, **policies})
        made.append(QueueSharder(by or session, allocator, "/jobs", "/jobs-leader", chosen, id=id))
        return made[-1]

    yield make
    for one in made:
        one.close()
