"""How long to wait before the next attempt: longer each time, up to a limit, cut by chance."""

from __future__ import annotations

from dataclasses import dataclass

from leaderq import chance as dice


@dataclass(frozen=True, slots=True)
class BackoffPolicy:
    """``first_s`` seconds after the first failure, ``factor`` times more after each, at most
    ``most_s``. Chance may cut the share ``jitter`` (0 to 1) of each delay, so that those who failed
    together do not come back together.
    """

    first_s: float
    most_s: float
    factor: float = 2.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        if not (0 <= self.first_s <= self.most_s and self.factor >= 1 and 0 <= self.jitter <= 1):
            rule = "0 <= first_s <= most_s, factor >= 1, 0 <= jitter <= 1"
            raise ValueError(f"{self!r} must satisfy {rule}")

    def delay_s(self, failures: int, chance: float | None = None) -> float:
        """Return the seconds to wait after ``failures`` failures in a row; none after 0.

        ``chance`` (0 to 1) replaces the random draw: 0 cuts nothing, 1 the whole share.
        """
        if failures < 1:
            return 0.0
        try:
            full_s = min(self.most_s, self.first_s * self.factor ** (failures - 1))
        except OverflowError:
            full_s = self.most_s if self.first_s else 0.0
        return full_s * (1 - self.jitter * (dice.random() if chance is None else chance))


class Backoff:
    """Counts failures in a row. Not synchronised."""

    def __init__(self, policy: BackoffPolicy) -> None:
        self.policy = policy
        self.failures = 0

    def next_s(self, chance: float | None = None) -> float:
        """Count one more failure; return the seconds to wait before the next attempt."""
        self.failures += 1
        return self.policy.delay_s(self.failures, chance)

    def reset(self) -> None:
        """Make the next failure the first again, because an attempt succeeded."""
        self.failures = 0
