"""Sessions and coordinators for the tests of distributed coalescing, each test below a root of its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leaderq.coalescing import DistributedQueueCoordinator
from leaderq.zookeeper import Session

Open = Callable[..., Session]
Make = Callable[..., DistributedQueueCoordinator]


@pytest.fixture
def coordinator_of(opened: Open) -> Iterator[Make]:
    """Coordinators, each on a session of its own unless told otherwise; closed after the test."""
    made: list[DistributedQueueCoordinator] = []

    def make(session: Session | None = None, **options: Any) -> DistributedQueueCoordinator:
        made.append(DistributedQueueCoordinator(session or opened(), "/coalescing", **options))
        return made[-1]

    yield make
    for one in made:
        one.close(timeout_s=0.5)
