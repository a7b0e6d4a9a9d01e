"""What becomes of an item whose consumer failed (pure)."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum

from leaderq.errors import ConfigurationError


class ErrorMode(Enum):
    """Where a failed item waits for its next attempt."""

    REQUEUE = "requeue"
    """At the tail of its kind: behind those that wait, with its id, priority or due time (Curator loses the latter two)."""
    KEEP = "keep"
    """Where it is: nothing behind it is handed out by this consumer before it is done, or set aside."""
    DELETE = "delete"
    """Nowhere: the error is logged, and the item is done with."""


class Verdict(Enum):
    """What is done with an item that failed."""

    RETRY = "retry"
    BURY = "bury"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how soon a failed item is tried again.

    ``attempts``: after so many failures it goes to the dead letters (``<path>-dead``); ``None``: it never does. Before the second
    attempt ``backoff_s`` seconds pass, before each further one ``factor`` times as many, at most ``max_backoff_s``; each wait is cut by
    a random share of up to ``jitter`` (0 to 1), so that what failed together does not come back together.
    """

    attempts: int | None = 10
    backoff_s: float = 0.1
    factor: float = 2.0
    max_backoff_s: float = 60.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        problems = []
        if self.attempts is not None and self.attempts < 1:
            problems.append(f"attempts={self.attempts!r}: give 1 or more, or None for no limit")
        if self.backoff_s < 0 or self.max_backoff_s < 0:
            problems.append(f"backoff_s={self.backoff_s!r}, max_backoff_s={self.max_backoff_s!r}: give 0 or more seconds")
        if self.factor < 1:
            problems.append(f"factor={self.factor!r}: give 1 or more")
        if not 0 <= self.jitter <= 1:
            problems.append(f"jitter={self.jitter!r}: give a share from 0 to 1")
        if problems:
            raise ConfigurationError(*problems)

    def verdict(self, mode: ErrorMode, failures: int) -> Verdict:
        """What to do with an item that has failed so often, this time included."""
        if mode is ErrorMode.DELETE:
            return Verdict.DELETE
        return Verdict.BURY if self.attempts is not None and failures >= self.attempts else Verdict.RETRY

    def wait_s(self, failures: int, chance: float | None = None) -> float:
        """Seconds until the next attempt, after so many failures; ``chance`` (0 to 1) stands for the dice."""
        share = self.jitter * (random.random() if chance is None else chance)
        exponent = min(failures - 1, 64)
        return float(min(self.max_backoff_s, self.backoff_s * self.factor**exponent) * (1 - share))
