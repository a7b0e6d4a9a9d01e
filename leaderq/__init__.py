"""leaderq: leader-elected consumers that stay alone and available.

A public name is loaded when it is first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leaderq.career import ILeaderCareer, LeaderCareer
    from leaderq.coalescing import (
        AsyncQueueCoordinator,
        DistributedQueueCoordinator,
        QueueCoordinator,
    )
    from leaderq.election import Candidate, Observer
    from leaderq.errors import Deposed, LeaderqError
    from leaderq.kafka import KafkaLeaderCareer
    from leaderq.producing import BufferedProducer
    from leaderq.running import Runner
    from leaderq.singular import SingularUpdateQueue
    from leaderq.term import Term
    from leaderq.zookeeper import Session, connect

__all__ = [
    "AsyncQueueCoordinator",
    "BufferedProducer",
    "Candidate",
    "Deposed",
    "DistributedQueueCoordinator",
    "ILeaderCareer",
    "KafkaLeaderCareer",
    "LeaderCareer",
    "LeaderqError",
    "Observer",
    "QueueCoordinator",
    "Runner",
    "Session",
    "SingularUpdateQueue",
    "Term",
    "connect",
]

_LAZY_EXPORTS = {
    "AsyncQueueCoordinator": "coalescing",
    "BufferedProducer": "producing",
    "Candidate": "election",
    "Deposed": "errors",
    "DistributedQueueCoordinator": "coalescing",
    "ILeaderCareer": "career",
    "KafkaLeaderCareer": "kafka",
    "LeaderCareer": "career",
    "LeaderqError": "errors",
    "Observer": "election",
    "QueueCoordinator": "coalescing",
    "Runner": "running",
    "Session": "zookeeper",
    "SingularUpdateQueue": "singular",
    "Term": "term",
    "connect": "zookeeper",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY_EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LAZY_EXPORTS[name]}"), name)
