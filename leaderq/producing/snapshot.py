"""A buffered producer at one moment, as plain numbers: for metrics, health checks and tests."""

from __future__ import annotations

from dataclasses import dataclass

from leaderq.producing.account import Balance
from leaderq.producing.patience import Breaker
from leaderq.producing.states import State


@dataclass(frozen=True)
class Snapshot:
    """``balance`` is exact, and of one moment with all other figures of the buffer. Seconds and bytes."""

    state: State
    balance: Balance
    memory_items: int
    memory_bytes: int
    journal_only: int
    """Requests that are on disk and not in memory."""
    journal_bytes: int
    oldest_age_s: float
    """Age of the oldest request in memory, which is the oldest of all; 0 if there is none."""
    spilled: int
    """How often spilling began."""
    batches: int
    retries: int
    breaker: Breaker
    sink_error: str | None
    """What the sink said last, if it has not taken a batch since."""
    journal_error: str | None
    untold: int
    """News that listeners were not told, for there were too many."""
