"""What a coordinator is told when it is made: how many wait, who gives way, when it acts by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from leaderq.errors import ConfigurationError

Merging = Callable[[Any, Any], Any]
"""From the value of the request that waits and that of the newcomer, the value that is to wait."""


class Overflow(Enum):
    """Who is declined when all waiting places are taken. A function in its place (:data:`Merging`) merges the newcomer's
    value into that of the newest request that waits; it is called outside of all locks, again if another newcomer was
    faster, so it must have no other effect."""

    DECLINE_NEW = "decline-new"
    """The newcomer."""
    REPLACE_OLDEST = "replace-oldest"
    """The one that has waited longest: the newcomer waits in its place, behind the others."""


@dataclass(frozen=True, slots=True)
class Debounce:
    """Run once requests have stopped coming: ``delay_s`` after the last of them, and ``max_delay_s`` after the first at the
    latest."""

    delay_s: float
    max_delay_s: float

    def due_s(self, *, first_s: float, now: float) -> float:
        """When a key whose first request came at ``first_s`` may run, if one more comes now."""
        return min(now + self.delay_s, first_s + self.max_delay_s)


@dataclass(frozen=True, slots=True)
class KeepIdle:
    """Keep the automata, and counters, of up to ``cap`` keys on which nobody works, those last used; ``sweep`` forgets those
    idle for ``idle_s``. Keys are spread over stripes, and the longest idle one *of a stripe* goes first: exact order needs
    ``stripes=1``."""

    cap: int
    idle_s: float | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """See :class:`~leaderq.coalescing.coordinator.QueueCoordinator`, whose parameters these are.

    :raises ConfigurationError: they contradict each other; all that is wrong is said at once.
    """

    waiters: int = 1
    overflow: Overflow | Merging = Overflow.DECLINE_NEW
    wait_s: float | None = 60.0
    safe_timeout_s: float | None = None
    debounce: Debounce | None = None
    idle: KeepIdle | None = None
    stripes: int = 64

    def __post_init__(self) -> None:
        if problems := [*self._problems_of_places(), *self._problems_of_times()]:
            raise ConfigurationError(*problems)

    def _problems_of_places(self) -> list[str]:
        problems = []
        if self.waiters < 0:
            problems.append(f"waiters is {self.waiters}; it must be 0 or more")
        if self.waiters < 1 and self.overflow is not Overflow.DECLINE_NEW:
            problems.append("with waiters=0 nobody waits who could be replaced or merged with; overflow must be DECLINE_NEW")
        if self.waiters < 1 and self.debounce:
            problems.append("with waiters=0 nobody can wait for the quiet that debounce wants; waiters must be 1 or more")
        overflow: object = self.overflow  # whatever was given
        if not isinstance(overflow, Overflow) and not callable(overflow):
            problems.append(f"overflow is {overflow!r}; it must be an Overflow, or a function of two values")
        if self.stripes < 1 or self.stripes & (self.stripes - 1):
            problems.append(f"stripes is {self.stripes}; it must be a power of two")
        if self.idle and self.idle.cap < self.stripes:
            problems.append(
                f"the cap of idle keys is {self.idle.cap}; it must be {self.stripes} (the number of stripes) or more"
            )
        return problems

    def _problems_of_times(self) -> list[str]:
        times = {"wait_s": self.wait_s, "safe_timeout_s": self.safe_timeout_s}
        if self.idle:
            times["idle_s"] = self.idle.idle_s
        if self.debounce:
            times |= {"delay_s": self.debounce.delay_s, "max_delay_s": self.debounce.max_delay_s}
        problems = [
            f"{name} is {value}; it must be above 0" for name, value in times.items() if value is not None and value <= 0
        ]
        if self.debounce and self.debounce.max_delay_s < self.debounce.delay_s:
            problems.append(f"max_delay_s {self.debounce.max_delay_s} is below delay_s {self.debounce.delay_s}")
        return problems
