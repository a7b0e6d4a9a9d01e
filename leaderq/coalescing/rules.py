"""What a coordinator is told when it is made, and what it tells of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from leaderq.arguments import at_least, plain_function, require, timeout, unless, wanted
from leaderq.timeouts import AS_SET, Deadline

Merging = Callable[[Any, Any], Any]
"""Merges the value of the waiting request with the newcomer's; the result waits."""


class Overflow(Enum):
    """Who is declined when all waiting places are taken. A function in its place (:data:`Merging`)
    merges the newcomer's value into that of the newest request that waits; it may be called again
    if another newcomer was faster, so it must have no other effect.
    """

    DECLINE_NEW = "decline-new"
    """The newcomer."""
    REPLACE_OLDEST = "replace-oldest"
    """The one that has waited longest: the newcomer waits in its place, behind the others."""


@dataclass(frozen=True, slots=True)
class Debounce:
    """Run once requests have stopped coming: ``delay_s`` after the last of them, and at the latest
    ``max_delay_s`` after the first.
    """

    delay_s: float
    max_delay_s: float


@dataclass(frozen=True, slots=True)
class KeepIdle:
    """Keep the automata, and counts, of up to ``cap`` keys on which nobody works, those last used;
    those idle for ``idle_s`` are forgotten.
    """

    cap: int
    idle_s: float | None = None


@dataclass(frozen=True, slots=True)
class Rules:
    """The parameters of :class:`~leaderq.coalescing.coordinator.QueueCoordinator`.

    :raises ConfigurationError: they contradict each other; all problems are named at once.
    """

    waiters: int = 1
    overflow: Overflow | Merging = Overflow.DECLINE_NEW
    timeout_s: float | None = 60.0
    safe_timeout_s: float | None = None
    debounce: Debounce | None = None
    idle: KeepIdle | None = None

    def __post_init__(self) -> None:
        idle, debounce, has_places = self.idle, self.debounce, self.waiters != 0
        overflow, function = self.overflow, "overflow (an Overflow, or a function)"
        times = {"safe_timeout_s": self.safe_timeout_s, "idle_s": idle and idle.idle_s}
        if debounce:
            times |= {"delay_s": debounce.delay_s, "max_delay_s": debounce.max_delay_s}
        problems = [
            at_least("waiters", self.waiters, 0),
            unless(
                has_places or overflow is Overflow.DECLINE_NEW,
                "with waiters=0 nobody waits who could be replaced or merged with; overflow must be"
                " DECLINE_NEW",
            ),
            unless(
                has_places or not debounce,
                "with waiters=0 nobody can wait for a debounce window to end",
            ),
            None if isinstance(overflow, Overflow) else plain_function(function, overflow),
            None if idle is None else at_least("the cap of idle keys", idle.cap, 1),
            timeout("timeout_s", self.timeout_s),
            *(
                wanted(name, value, value != 0 and timeout(name, value) is None, "seconds above 0")
                for name, value in times.items()
            ),
        ]
        if debounce and not any(problems) and debounce.max_delay_s < debounce.delay_s:
            pair = f"max_delay_s {debounce.max_delay_s}, delay_s {debounce.delay_s}"
            problems.append(f"{pair}: the first must not be below the second")
        require(*problems)

    def deadline(self, timeout_s: float | None) -> Deadline:
        if timeout_s is AS_SET:
            return Deadline(self.timeout_s)
        require(timeout("timeout_s", timeout_s))
        return Deadline(timeout_s)


@dataclass(slots=True)
class CoordinatorStats:
    """What a coordinator has done since it was made, and its work in hand."""

    runs: int = 0
    """Runs begun, whether at once or after waiting."""
    promoted: int = 0
    """Requests that waited, and then ran."""
    blocked: int = 0
    """Requests that had to wait."""
    declined: int = 0
    """Requests declined because all places were taken."""
    replaced: int = 0
    """Requests that waited, and were declined for a newer one."""
    merged: int = 0
    """Requests declined, their value merged into that of one that waited."""
    busy: int = 0
    """Requests that would have had to wait, and did not want to."""
    withdrawn: int = 0
    """Requests that gave up waiting: time-outs, interrupts, cancellations."""
    repeated: int = 0
    """Runs for requests whose waiter gave up: by whoever ran already, or by ``cover``."""
    evicted: int = 0
    """Runs that outlived the safe time-out."""
    shared: int = 0
    """Requests that received the result of another's run."""
    orphaned: int = 0
    """Requests that hoped for such a result, and asked again because there was none."""
    abandoned: int = 0
    """Requests that still waited when the coordinator was closed."""
    forgotten: int = 0
    """Idle keys forgotten by the cap or their age; by default none is kept, and none counted."""
    running: int = 0
    """Keys that somebody works on now."""
    waiting: int = 0
    """Requests that wait now."""
    idle: int = 0
    """Keys kept although nobody works on them."""
    owed: int = 0
    """Requests declined whose waiter gave up, and that nobody has run for yet."""

    @property
    def accepted(self) -> int:
        """Requests that ran at once."""
        return self.runs - self.promoted - self.repeated

    @property
    def saved(self) -> int:
        """Requests that another's run covered."""
        return self.declined + self.replaced + self.merged


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """Of one key, because its automaton was made: by default, because it was last idle."""

    runs: int
    blocked: int
    declined: int
    """Requests declined for any reason."""
