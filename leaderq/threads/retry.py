"""When to try again what has failed: the one rule for all of leaderq."""

from __future__ import annotations

from dataclasses import dataclass

from leaderq.base import chance as dice
from leaderq.base.arguments import at_least, between, require, wanted


@dataclass(frozen=True, slots=True)
class Retry:
    """A rule for what has failed: how often it is tried again, and after which waits.

    ``attempts``: after so many failures it is given up: a queue moves the item to its dead letters,
    a producer reports a loss, a career is left to the other candidates. ``None``: it is never given
    up. The wait before the second attempt is ``first_s`` seconds; each further wait is ``factor``
    times as long, at most ``most_s`` seconds. Each wait is cut at random, by up to the share
    ``jitter`` (0 to 1) of it, so that what failed together does not come back together.

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
        """Whether to give up after ``failures`` failures."""
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

    def next_s(self) -> float:
        """Count one more failure; return the seconds to wait before the next attempt."""
        self.failures += 1
        return self.retry.delay_s(self.failures)

    def reset(self) -> None:
        """Forget all failures, because an attempt has succeeded."""
        self.failures = 0
