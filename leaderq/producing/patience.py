"""How long to leave a sink alone after it failed. Pure: the time is given, and so is chance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum


@dataclass(frozen=True)
class Retry:
    """Pauses between attempts: ``first_s``, growing by ``factor`` up to ``max_s``, each shortened by up to ``jitter`` of
    itself by chance.

    After ``breaker_after`` failures in a row the *breaker* is open: the sink is left alone for ``breaker_s`` (with the
    same jitter), then one attempt decides whether it closes. ``max_attempts``: a batch that failed so often is given up
    (``None``: never; the default loses nothing).
    """

    first_s: float = 0.05
    max_s: float = 2.0
    factor: float = 2.0
    jitter: float = 0.5
    breaker_after: int = 8
    breaker_s: float = 2.0
    max_attempts: int | None = None

    def problems(self) -> list[str]:
        """What of it cannot be used, in sentences."""
        found = [
            f"retry.{name}={getattr(self, name)!r}: give 0 or more seconds"
            for name in ("first_s", "max_s", "breaker_s")
            if getattr(self, name) < 0
        ]
        if not 0 <= self.jitter <= 1:
            found.append(f"retry.jitter={self.jitter!r}: give a share between 0 and 1")
        if self.factor < 1:
            found.append(f"retry.factor={self.factor!r}: give 1 or more")
        found += [
            f"retry.{name}={value!r}: give 1 or more"
            for name, value in (("breaker_after", self.breaker_after), ("max_attempts", self.max_attempts))
            if value is not None and value < 1
        ]
        return found

    def pause_s(self, failures: int, chance: float) -> float:
        """The pause after so many failures in a row, ``chance`` being between 0 and 1."""
        grown = self.max_s
        if failures <= 64:  # beyond, the power overflows
            grown = min(self.max_s, self.first_s * self.factor ** (failures - 1))
        return grown * (1 - self.jitter * chance)


class Breaker(Enum):
    """Whether the sink is tried: closed = yes, open = left alone, half open = one attempt decides."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half open"


@dataclass(frozen=True)
class Standing:
    """What is known of the sink: failures in a row, the breaker, and until when (``clock.now_s``) it is left alone."""

    failures: int = 0
    breaker: Breaker = Breaker.CLOSED
    wait_until_s: float = 0.0

    def succeeded(self) -> Standing:
        """After an attempt that went well."""
        return _FRESH

    def failed(self, retry: Retry, now: float, chance: Callable[[], float], *, is_fatal: bool = False) -> Standing:
        """After one that did not. ``is_fatal``: trying again will not help until somebody does something, so the breaker
        opens at once."""
        failures = self.failures + 1
        if is_fatal or self.breaker is not Breaker.CLOSED or failures >= retry.breaker_after:
            pause_s = retry.breaker_s * (1 - retry.jitter * chance())
            return Standing(failures, Breaker.OPEN, now + pause_s)
        return Standing(failures, Breaker.CLOSED, now + retry.pause_s(failures, chance()))

    def at(self, now: float) -> Standing:
        """As it stands ``now``: an open breaker whose time is over is half open."""
        if self.breaker is Breaker.OPEN and now >= self.wait_until_s:
            return replace(self, breaker=Breaker.HALF_OPEN)
        return self


_FRESH = Standing()
