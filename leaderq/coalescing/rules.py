"""The parameters of a coordinator, and its figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from leaderq.base.arguments import (
    above_0,
    between,
    instance,
    plain_function,
    require,
    timeout,
    unless,
)


@dataclass(frozen=True, slots=True)
class Debounce:
    """Run once requests have stopped coming: ``delay_s`` after the last of them, and at the latest
    ``max_delay_s`` after the first.

    :raises ConfigurationError: a time is not above 0, or ``max_delay_s`` is below ``delay_s``.
    """

    delay_s: float
    max_delay_s: float

    def __post_init__(self) -> None:
        require(
            above_0("delay_s", self.delay_s, "seconds"),
            above_0("max_delay_s", self.max_delay_s, "seconds"),
        )
        pair = f"max_delay_s {self.max_delay_s}, delay_s {self.delay_s}"
        require(unless(self.max_delay_s >= self.delay_s, f"{pair}: the first is below the second"))


@dataclass(frozen=True, slots=True)
class Rules:
    """The parameters of :class:`~leaderq.coalescing.coordinator.QueueCoordinator`.

    :raises ConfigurationError: they contradict each other; all problems are named at once.
    """

    waiters: int
    timeout_s: float | None
    cover: Callable[[Any], object] | None
    safe_timeout_s: float | None
    on_evicted: Callable[[Any], object] | None
    debounce: Debounce | None
    name: str

    def __post_init__(self) -> None:
        safe_s = self.safe_timeout_s
        require(
            instance("waiters", self.waiters, int) or between("waiters", self.waiters, 0, 1),
            timeout("timeout_s", self.timeout_s),
            plain_function("cover", self.cover, or_none=True),
            None if safe_s is None else above_0("safe_timeout_s", safe_s, "seconds"),
            plain_function("on_evicted", self.on_evicted, or_none=True),
            instance("debounce", self.debounce, Debounce | None),
            unless(
                self.waiters != 0 or self.debounce is None,
                "with waiters=0 nobody can wait for a debounce window to end",
            ),
            instance("name", self.name, str),
        )


@dataclass(slots=True)
class CoordinatorStats:
    """What a coordinator has done since it was made, and what it is doing now."""

    runs: int = 0
    """Runs begun: at once, after waiting (``promoted``), or again (``repeated``)."""
    promoted: int = 0
    """Requests that waited, and then ran."""
    blocked: int = 0
    """Requests that had to wait."""
    declined: int = 0
    """Requests declined because another one covers them: runs saved."""
    withdrawn: int = 0
    """Requests that gave up waiting: time-outs, interrupts, cancellations."""
    repeated: int = 0
    """Runs for requests whose waiter gave up: by whoever ran already, or by ``cover``."""
    evicted: int = 0
    """Runs that outlived the safe time-out."""
    running: int = 0
    """Keys that somebody works on now."""
    waiting: int = 0
    """Requests that wait now."""
    owed: int = 0
    """Requests declined whose waiter gave up, and that nobody has run for yet."""
