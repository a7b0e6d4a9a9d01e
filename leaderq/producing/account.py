"""The exact account: what was accepted, and what has become of each request. Pure.

At every moment ``accepted + recovered == confirmed + pending + dropped + failed``. *accepted*:
calls that took a request (also one that the policy dropped at once, which the call told).
*recovered*: found in the journal at the start. *confirmed*: the sink has acknowledged it.
*dropped*: given up by a policy of the producer. *failed*: given up because the process step or the
sink will not have it. A call that raised has accepted nothing and is counted apart, as *refused*.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from leaderq.producing.states import BufferState


class LossReason(str, Enum):
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
        return self in (LossReason.PROCESS, LossReason.REFUSED, LossReason.ATTEMPTS)


_CHOSEN = {one.value for one in (LossReason.NEWEST, LossReason.OLDEST, LossReason.EXPIRED)}


class Lost(NamedTuple):
    """A request that was accepted and given up: dropped by a policy, or failed. ``request`` is
    ``None`` if it cannot be read any more."""

    request: Any
    key: Hashable
    reason: LossReason
    error: BaseException | None = None


@dataclass(frozen=True)
class Settlement:
    """What became of the requests that were accepted: the answer of a flush or a close.

    True if each of them is confirmed or safely in the journal (or was skipped by the process step);
    false if one was lost, now or ever, or if nobody knows yet.
    """

    confirmed: int = 0
    journaled: int = 0
    """Not confirmed, and in the journal as its policy says; sent from there."""
    pending: int = 0
    """Not confirmed, and in the memory of this process only."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """How many were given up, by reason."""
    losses: tuple[Lost, ...] = ()
    """The last of these, twenty at most."""

    def __bool__(self) -> bool:
        return not self.pending and not self.lost

    @property
    def is_as_chosen(self) -> bool:
        """Whether only requests are missing that a policy of the caller's has dropped: a time to
        live, ``drop_oldest``, ``drop_newest``."""
        return not self.pending and not set(self.lost) - _CHOSEN

    def __str__(self) -> str:
        text = f"confirmed={self.confirmed} journaled={self.journaled} pending={self.pending}"
        return f"{text} lost={dict(self.lost)}"


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
    def lost(self) -> int:
        """How many were given up, in all."""
        return sum(self.dropped.values()) + sum(self.failed.values())

    @property
    def is_exact(self) -> bool:
        """Whether the equation of the module holds."""
        return self.accepted + self.recovered == self.confirmed + self.pending + self.lost


@dataclass
class RequestAccount:
    """Guarded by the buffer's lock. ``pending`` is counted by itself, where requests come and go,
    not derived, so the equation of the module proves something."""

    accepted: int = 0
    recovered: int = 0
    confirmed: int = 0
    pending: int = 0
    gone: Counter[LossReason] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)

    def accept(self) -> None:
        self.accepted += 1
        self.pending += 1

    def recover(self, count: int) -> None:
        self.recovered += count
        self.pending += count

    def confirm(self, count: int) -> None:
        self.confirmed += count
        self.pending -= count

    def give_up(self, reason: LossReason, count: int = 1) -> None:
        self.gone[reason] += count
        self.pending -= count

    def balance(self) -> Balance:
        return Balance(
            self.accepted,
            self.recovered,
            self.confirmed,
            self.pending,
            {one.value: count for one, count in self.gone.items() if not one.is_failure},
            {one.value: count for one, count in self.gone.items() if one.is_failure},
            dict(self.refused),
        )


@dataclass(frozen=True)
class Snapshot:
    """A buffered producer at one moment, as plain numbers: for metrics, health checks and tests.

    ``balance`` is exact, and of one moment with all other figures of the buffer. Seconds and bytes.
    """

    state: BufferState
    balance: Balance
    memory_items: int
    memory_bytes: int
    journal_only: int
    """Requests that are on disk and not in memory."""
    journal_bytes: int
    oldest_age_s: float
    """Age of the oldest request in memory, which is the oldest of all; 0 if there is none."""
    spilled: int
    """How many times spilling began."""
    batches: int
    retries: int
    sink_error: str | None
    """What the sink said last, if it has not taken a batch since."""
    journal_error: str | None
    untold: int
    """News that listeners were not told, because there were too many."""
