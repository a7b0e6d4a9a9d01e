"""leaderq: leader-elected consumers that stay alone and available.

The public names are loaded when first used, so that importing the package costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leaderq.career import ILeaderCareer, LeaderCareer
    from leaderq.election import Candidate, Observer
    from leaderq.errors import Deposed, LeaderqError
    from leaderq.kafka import KafkaLeaderCareer
    from leaderq.running import Runner
    from leaderq.term import Term
    from leaderq.zookeeper import Session, connect

__all__ = [
    "Candidate",
    "Deposed",
    "ILeaderCareer",
    "KafkaLeaderCareer",
    "LeaderCareer",
    "LeaderqError",
    "Observer",
    "Runner",
    "Session",
    "Term",
    "connect",
]

_ROOMS = {
    "Candidate": "election",
    "Deposed": "errors",
    "ILeaderCareer": "career",
    "KafkaLeaderCareer": "kafka",
    "LeaderCareer": "career",
    "LeaderqError": "errors",
    "Observer": "election",
    "Runner": "running",
    "Session": "zookeeper",
    "Term": "term",
    "connect": "zookeeper",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
