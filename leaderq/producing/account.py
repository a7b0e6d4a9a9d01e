"""The exact account: what was accepted, and what has become of each request. Pure; guarded by the producer's lock.

At every moment ``accepted + recovered == confirmed + pending + dropped + failed``. *accepted*: calls that took a request
(also one that the policy dropped at once, of which the call told). *recovered*: found in the journal at the start.
*confirmed*: the sink has acknowledged it. *dropped*: given up by a policy of the producer. *failed*: given up because the
process step or the sink will not have it. A call that raised has accepted nothing and is counted apart, as *refused*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum


class Reason(str, Enum):
    """Why a request was given up."""

    NEWEST = "no room, drop_newest"
    OLDEST = "no room, drop_oldest"
    EXPIRED = "expired"
    SKIPPED = "skipped by the process step"
    CLOSED = "closed before it was sent"
    CORRUPT = "corrupt in the journal"
    JOURNAL = "not written to the journal"
    PROCESS = "the process step failed"
    REFUSED = "refused by the sink"
    ATTEMPTS = "too many attempts"

    @property
    def is_failure(self) -> bool:
        """Whether it counts as failed rather than dropped."""
        return self in (Reason.PROCESS, Reason.REFUSED, Reason.ATTEMPTS)


@dataclass(frozen=True)
class Balance:
    """The account at one moment."""

    accepted: int
    recovered: int
    confirmed: int
    pending: int
    dropped: Mapping[str, int]
    failed: Mapping[str, int]
    refused: Mapping[str, int]

    @property
    def is_exact(self) -> bool:
        """Whether the equation of the module holds."""
        gone = sum(self.dropped.values()) + sum(self.failed.values())
        return self.accepted + self.recovered == self.confirmed + self.pending + gone


@dataclass
class Account:
    """See the module. ``pending`` is counted by itself, where requests come and go, not derived: so the equation proves
    something."""

    accepted: int = 0
    recovered: int = 0
    confirmed: int = 0
    pending: int = 0
    gone: Counter[Reason] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def accept(self) -> None:
        """A request was taken."""
        self.accepted += 1
        self.pending += 1

    def recover(self, count: int) -> None:
        """So many were found in the journal."""
        self.recovered += count
        self.pending += count

    def confirm(self, count: int) -> None:
        """The sink has acknowledged so many."""
        self.confirmed += count
        self.pending -= count

    def give_up(self, reason: Reason, count: int = 1) -> None:
        """So many were given up."""
        self.gone[reason] += count
        self.pending -= count

    def balance(self) -> Balance:
        """A copy."""
        return Balance(
            self.accepted,
            self.recovered,
            self.confirmed,
            self.pending,
            {reason.value: count for reason, count in self.gone.items() if count and not reason.is_failure},
            {reason.value: count for reason, count in self.gone.items() if count and reason.is_failure},
            dict(self.refused),
        )
