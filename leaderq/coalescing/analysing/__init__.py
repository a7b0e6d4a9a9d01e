"""Whether coalescing pays on a stream of requests: how its keys repeat, what would be saved."""

from __future__ import annotations

from leaderq.coalescing.analysing.analysis import (
    Analysis,
    Duplication,
    RepeatMeter,
    Repeats,
    Saving,
    SavingSimulator,
    analyse,
)
from leaderq.coalescing.analysing.requests import Request, RequestLines, access_log, key_and_time

__all__ = [
    "Analysis",
    "Duplication",
    "RepeatMeter",
    "Repeats",
    "Request",
    "RequestLines",
    "Saving",
    "SavingSimulator",
    "access_log",
    "analyse",
    "key_and_time",
]
