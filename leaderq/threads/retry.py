"""How often and how soon what failed is tried again: the one vocabulary for all of leaderq."""

from __future__ import annotations

from dataclasses import dataclass

from leaderq.base import chance as dice
from leaderq.base.arguments import at_least, between, require, wanted


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how soon what failed is tried again.

    ``attempts``: how often it may fail before it is given up (to the dead letters of a queue, as a
    loss of a producer, to the other candidates of a career); ``None``: it never is. Before the
    second attempt ``first_s`` seconds pass, before each further one ``factor`` times as many, at
    most ``most_s``. Chance cuts up to the share ``jitter`` (0 to 1) of each wait, so that what
    failed together does not come back together.

    :raises ConfigurationError: a number cannot be used; every problem is named.
    """

    attempts: int | None = None
    first_s: float = 0.05
    most_s: float = 60.0
    factor: float = 2.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        attempts = self.attempts
        is_count = attempts is None or (type(attempts) is int and attempts >= 1)
        require(
            wanted("attempts", attempts, is_count, "1 or more, or None for no limit"),
            at_least("first_s", self.first_s, 0, "seconds"),
            at_least("most_s", self.most_s, 0, "seconds"),
            at_least("factor", self.factor, 1.0),
            between("jitter", self.jitter, 0, 1),
        )

    def is_exhausted(self, failures: int) -> bool:
        """Whether what has failed so often is given up."""
        return self.attempts is not None and failures >= self.attempts

    def delay_s(self, failures: int, chance: float | None = None) -> float:
        """Return the seconds to wait after ``failures`` failures in a row; none after 0.

        ``chance`` (0 to 1) replaces the random draw: 0 cuts nothing, 1 the whole share.
        """
        if failures < 1:
            return 0.0
        first_s = min(self.first_s, self.most_s)
        try:
            full_s = min(self.most_s, first_s * self.factor ** (failures - 1))
        except OverflowError:
            full_s = self.most_s if first_s else 0.0
        return full_s * (1 - self.jitter * (dice.random() if chance is None else chance))


class Backoff:
    """Counts failures in a row. Not synchronised."""

    def __init__(self, retry: Retry) -> None:
        self.retry = retry
        self.failures = 0

    def next_s(self, chance: float | None = None) -> float:
        """Count one more failure; return the seconds to wait before the next attempt."""
        self.failures += 1
        return self.retry.delay_s(self.failures, chance)

    def reset(self) -> None:
        """Make the next failure the first again, because an attempt succeeded."""
        self.failures = 0
