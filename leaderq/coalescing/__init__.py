"""One works on a key, at most one waits, the rest are declined: the same work is never done twice at once, nor queued up.

=================================  ==================================================================================================
:class:`TrafficAutomaton`          the rule of one key: a table, without locks, threads or clocks
:class:`QueueCoordinator`          the rule for all keys of a process, for threads
=================================  ==================================================================================================

Names are loaded when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leaderq.coalescing.automaton import Departure, State, TrafficAutomaton
    from leaderq.coalescing.outcome import Outcome, Refusal

__all__ = [
    "Departure",
    "Outcome",
    "Refusal",
    "State",
    "TrafficAutomaton",
]

_ROOMS = {
    "Departure": "automaton",
    "Outcome": "outcome",
    "Refusal": "outcome",
    "State": "automaton",
    "TrafficAutomaton": "automaton",
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_ROOMS[name]}"), name)
