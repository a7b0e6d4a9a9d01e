"""leaderq: leader-elected consumers that stay alone and available.

A public name is loaded when it is first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if sys.version_info[:2] < (3, 10) or os.name != "posix":
    _HERE = f"Python {sys.version_info[0]}.{sys.version_info[1]} on {sys.platform}"
    raise ImportError(f"leaderq needs Python 3.10 or newer, on Linux; this is {_HERE}")

from leaderq.base.lazy import exported, provide

if TYPE_CHECKING:
    from leaderq.async_term import AsyncTerm as AsyncTerm
    from leaderq.career import ILeaderCareer as ILeaderCareer
    from leaderq.career import LeaderCareer as LeaderCareer
    from leaderq.coalescing import AsyncQueueCoordinator as AsyncQueueCoordinator
    from leaderq.coalescing import DistributedQueueCoordinator as DistributedQueueCoordinator
    from leaderq.coalescing import QueueCoordinator as QueueCoordinator
    from leaderq.election import Candidate as Candidate
    from leaderq.election import Observer as Observer
    from leaderq.errors import Deposed as Deposed
    from leaderq.errors import LeaderqError as LeaderqError
    from leaderq.kafka import AsyncKafkaLeaderCareer as AsyncKafkaLeaderCareer
    from leaderq.kafka import KafkaLeaderCareer as KafkaLeaderCareer
    from leaderq.producing import BufferedProducer as BufferedProducer
    from leaderq.running import AsyncLeaderCareer as AsyncLeaderCareer
    from leaderq.running import AsyncScheduledCareer as AsyncScheduledCareer
    from leaderq.running import Runner as Runner
    from leaderq.schedules import AsyncTick as AsyncTick
    from leaderq.schedules import ScheduledCareer as ScheduledCareer
    from leaderq.schedules import Tick as Tick
    from leaderq.schedules import schedule as schedule
    from leaderq.singular import SingularUpdateQueue as SingularUpdateQueue
    from leaderq.term import EndingTerm as EndingTerm
    from leaderq.term import Term as Term
    from leaderq.zookeeper import Session as Session
    from leaderq.zookeeper import connect as connect

__getattr__, __all__ = exported(
    __name__,
    {
        "async_term": "AsyncTerm",
        "career": "ILeaderCareer LeaderCareer",
        "coalescing": "AsyncQueueCoordinator DistributedQueueCoordinator QueueCoordinator",
        "election": "Candidate Observer",
        "errors": "Deposed LeaderqError",
        "kafka": "AsyncKafkaLeaderCareer KafkaLeaderCareer",
        "producing": "BufferedProducer",
        "running": "AsyncLeaderCareer AsyncScheduledCareer Runner",
        "schedules": "AsyncTick ScheduledCareer Tick schedule",
        "singular": "SingularUpdateQueue",
        "term": "EndingTerm Term",
        "zookeeper": "Session connect",
    },
)


def _leadership() -> object:
    from leaderq.running import leadership

    return leadership


provide("leadership", _leadership)  # to sessions, which it is built on
