"""When a connection counts as dead; pure.

kazoo looks at its pings only when its select call returns nothing, so a connection in steady use is never found dead
(20 s of a frozen server without a change of state, measured). The rule here is Java's, made safe against our own stops: a
peer is silent if nothing was heard for 2T/3 **and** something has been waiting for its answer for T/3. The second half
spares a peer which we gave no time, having been stopped ourselves (SIGSTOP, a C call that kept the GIL) with nothing
asked.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Silence:
    """Times in monotonic seconds; one per connection to a server."""

    timeout_s: float
    heard_s: float
    waiting_since_s: float | None = None

    def sent(self, now: float) -> None:
        """Something went out that must be answered."""
        if self.waiting_since_s is None:
            self.waiting_since_s = now

    def heard(self, now: float, *, still_waiting: bool) -> None:
        """Something came in; ``still_waiting`` for answers to other requests or not."""
        self.heard_s = now
        self.waiting_since_s = now if still_waiting else None

    def is_dead(self, now: float) -> bool:
        """Whether the peer must be given up."""
        if self.waiting_since_s is None:
            return False
        return now - self.heard_s > self.limit_s and now - self.waiting_since_s > self.timeout_s / 3

    @property
    def limit_s(self) -> float:
        """How long one connection may be silent: T/3 is left to reach another server before the session expires."""
        return self.timeout_s * 2 / 3
