"""One works on a key, at most one waits, the rest are declined: the same work is never done twice at once, nor queued up.

===================================  ================================================================================
:class:`TrafficAutomaton`            the rule of one key, without locks, threads or clocks
:class:`QueueCoordinator`            the rule for all keys of a process: for threads, callbacks and futures
:class:`AsyncQueueCoordinator`       the same for asyncio tasks; may share its keys with threads
:class:`DistributedQueueCoordinator` the same promise across processes, through ZooKeeper
===================================  ================================================================================

Names are loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leaderq.coalescing.asynchronous import AsyncQueueCoordinator
    from leaderq.coalescing.automaton import Departure, State, TrafficAutomaton
    from leaderq.coalescing.coordinator import QueueCoordinator
    from leaderq.coalescing.counters import Counters, Counts, KeyCounters
    from leaderq.coalescing.distributed import DistributedQueueCoordinator
    from leaderq.coalescing.outcome import Outcome, Refusal
    from leaderq.coalescing.rules import Debounce, KeepIdle, Overflow
    from leaderq.coalescing.token import Stage, Token

__all__ = [
    "AsyncQueueCoordinator",
    "Counters",
    "Counts",
    "Debounce",
    "Departure",
    "DistributedQueueCoordinator",
    "KeepIdle",
    "KeyCounters",
    "Outcome",
    "Overflow",
    "QueueCoordinator",
    "Refusal",
    "Stage",
    "State",
    "Token",
    "TrafficAutomaton",
]

_ROOMS = {
    "AsyncQueueCoordinator": "asynchronous",
    "Counters": "counters",
    "Counts": "counters",
    "Debounce": "rules",
    "Departure": "automaton",
    "DistributedQueueCoordinator": "distributed",
    "KeepIdle": "rules",
    "KeyCounters": "counters",
    "Outcome": "outcome",
    "Overflow": "rules",
    "QueueCoordinator": "coordinator",
    "Refusal": "outcome",
    "Stage": "token",
    "State": "automaton",
    "Token": "token",
    "TrafficAutomaton": "automaton",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
