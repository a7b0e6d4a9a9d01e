"""One works on a key, at most one waits, the rest are declined: the same work is never done twice
at once, nor queued up.

=====================================  =========================================================
:class:`TrafficAutomaton`              the rule of one key, without locks, threads or clocks
:class:`QueueCoordinator`              the rule for all keys of a process: threads and callbacks
:class:`AsyncQueueCoordinator`         for asyncio tasks; may share its keys with threads
:class:`DistributedQueueCoordinator`   the same promise across processes, through ZooKeeper
=====================================  =========================================================

Names are loaded when first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaderq.base.lazy import exported

if TYPE_CHECKING:
    from leaderq.coalescing.asynchronous import AsyncQueueCoordinator as AsyncQueueCoordinator
    from leaderq.coalescing.automaton import EnqueueOutcome as EnqueueOutcome
    from leaderq.coalescing.automaton import TrafficAutomaton as TrafficAutomaton
    from leaderq.coalescing.automaton import TrafficState as TrafficState
    from leaderq.coalescing.coordinator import QueueCoordinator as QueueCoordinator
    from leaderq.coalescing.distributed.coordinator import (
        DistributedQueueCoordinator as DistributedQueueCoordinator,
    )
    from leaderq.coalescing.rules import CoordinatorStats as CoordinatorStats
    from leaderq.coalescing.rules import Debounce as Debounce
    from leaderq.coalescing.token import Token as Token
    from leaderq.coalescing.token import TokenStage as TokenStage

__getattr__, __all__ = exported(
    __name__,
    {
        "asynchronous": "AsyncQueueCoordinator",
        "automaton": "EnqueueOutcome TrafficAutomaton TrafficState",
        "coordinator": "QueueCoordinator",
        "distributed.coordinator": "DistributedQueueCoordinator",
        "rules": "CoordinatorStats Debounce",
        "token": "Token TokenStage",
    },
)
