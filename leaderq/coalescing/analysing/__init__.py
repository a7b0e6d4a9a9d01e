"""Whether coalescing pays on a stream of requests: how its keys repeat, and how many runs would be saved."""

from __future__ import annotations

from leaderq.coalescing.analysing.analysis import Analysis, Request, analyse
from leaderq.coalescing.analysing.repeats import Duplication, RepeatMeter, Repeats
from leaderq.coalescing.analysing.saving import Saving, SavingSimulator

__all__ = [
    "Analysis",
    "Duplication",
    "RepeatMeter",
    "Repeats",
    "Request",
    "Saving",
    "SavingSimulator",
    "analyse",
]
