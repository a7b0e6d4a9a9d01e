"""How long a leader may trust its own leadership without hearing from the quorum (pure).

T is the negotiated session time-out, the smallest one granted since the term was won. The leader
sends a write that changes nothing every T/6. Only an *acknowledged write* proves anything: reads,
pings and the state CONNECTED are answered by a server that may itself be cut off. Time counts from
when the write was *sent*. Why 2T/3 from then ends before any other candidate can win, and what that
needs of the servers: docs/design/election.md, "What the guarantee rests on".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class LeaseState(Enum):
    """What a lease is worth at an instant."""

    FULL = "full"
    LATE = "late"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Lease:
    """``timeout_s`` is T; ``heard_s``: when the last acknowledged write was sent; ``sent_s``: when
    the newest one was, acknowledged or not. Times are seconds on :func:`leaderq.clock.now_s`.
    """

    timeout_s: float
    heard_s: float
    sent_s: float

    @classmethod
    def begun(cls, *, timeout_s: float, sent_s: float) -> Lease:
        """The lease that starts with the write that won the term."""
        return cls(timeout_s, sent_s, sent_s)

    @property
    def ends_s(self) -> float:
        """The end of trust: 2T/3 after the last acknowledged write was sent."""
        return self.heard_s + self.timeout_s * 2 / 3

    @property
    def late_s(self) -> float:
        """When silence becomes suspicious: two renewals have gone unanswered."""
        return self.heard_s + self.timeout_s / 3

    @property
    def renew_s(self) -> float:
        """When the next renewal is to be sent: T/6 after the newest one."""
        return self.sent_s + self.timeout_s / 6

    def granted(self, timeout_s: float) -> Lease:
        """A connection was made under the session time-out ``timeout_s``."""
        return replace(self, timeout_s=min(self.timeout_s, timeout_s))

    def sent(self, at_s: float) -> Lease:
        """A renewal was sent."""
        return replace(self, sent_s=max(self.sent_s, at_s))

    def acknowledged(self, sent_s: float) -> Lease:
        """The renewal sent at ``sent_s`` was acknowledged; replies may come in any order."""
        return replace(self, heard_s=max(self.heard_s, sent_s))

    def trust(self, now_s: float) -> LeaseState:
        """What the lease is worth now."""
        if now_s >= self.ends_s:
            return LeaseState.NONE
        return LeaseState.LATE if now_s >= self.late_s else LeaseState.FULL

    def wake_s(self, now_s: float) -> float:
        """The next instant at which something is due: a renewal, suspicion, or the end."""
        return min(
            at for at in (self.renew_s, self.late_s, self.ends_s) if at > now_s or at == self.ends_s
        )
