"""Where a newly accepted request goes, and what has become of each request. Pure: it uses no
thread, clock or file.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, NamedTuple

NEAR: Final = 0.75
"""The share of the memory from which on it is written down in advance."""
_LOW: Final = 0.5
"""The share at which the journal is read again."""


class LossReason(str, Enum):
    """Why an accepted request was lost."""

    NEWEST = "no room, drop_newest"
    OLDEST = "no room, drop_oldest"
    EXPIRED = "expired"
    CLOSED = "closed before it was sent"
    CORRUPT = "corrupt in the journal"
    UNDECODABLE = "kept in the journal, cannot be decoded"
    JOURNAL = "not written to the journal"
    REFUSED = "refused by the sink"
    ATTEMPTS = "too many attempts"

    @property
    def is_failure(self) -> bool:
        """Whether it counts as failed rather than dropped."""
        return self in (LossReason.REFUSED, LossReason.ATTEMPTS)


_CHOSEN = {one.value for one in (LossReason.NEWEST, LossReason.OLDEST, LossReason.EXPIRED)}


class Lost(NamedTuple):
    """An accepted request that was given up: dropped by a policy, or failed. ``request`` is
    ``None`` if it cannot be read any more.
    """

    request: Any
    key: Hashable
    reason: LossReason
    error: BaseException | None = None


@dataclass(frozen=True)
class Settlement:
    """What became of the requests that were accepted: the answer of a flush or a close.

    True if each of them is confirmed or safely in the journal; false if one was lost, now or ever,
    or if nobody knows (yet).
    """

    confirmed: int = 0
    journaled: int = 0
    """Not confirmed, and in the journal; sent from there."""
    pending: int = 0
    """Not confirmed, and in the memory of this process only."""
    lost: Mapping[str, int] = field(default_factory=dict)
    """How many were lost, by reason."""
    losses: tuple[Lost, ...] = ()
    """The last lost requests, twenty at most."""
    journal_error: BaseException | None = None
    """Why some that are in the journal may not outlast a power cut, or perhaps this process."""

    def __bool__(self) -> bool:
        return not self.pending and not self.lost and self.journal_error is None

    @property
    def is_as_chosen(self) -> bool:
        """Whether the only missing requests were dropped by a policy of the caller's: a time to
        live, ``drop_oldest``, ``drop_newest``.
        """
        return not self.pending and not set(self.lost) - _CHOSEN and self.journal_error is None

    def __str__(self) -> str:
        text = f"confirmed={self.confirmed} journaled={self.journaled} pending={self.pending}"
        return f"{text} lost={dict(self.lost)} journal_error={self.journal_error}"


@dataclass(frozen=True)
class Balance:
    """The account at one moment, when ``accepted + recovered == confirmed + pending + dropped +
    failed``.

    *accepted*: calls that took a request (also one that the policy dropped at once, as the call
    told). *recovered*: found in the journal at the start. *confirmed*: acknowledged by the sink.
    *dropped*: by a policy of the producer. *failed*: the sink does not accept it. A
    call that raised has accepted nothing, and is counted as *refused*.
    """

    accepted: int
    recovered: int
    confirmed: int
    pending: int
    dropped: Mapping[str, int]
    failed: Mapping[str, int]
    refused: Mapping[str, int]

    @property
    def lost(self) -> int:
        """How many requests were lost in all: dropped or failed."""
        return sum(self.dropped.values()) + sum(self.failed.values())

    @property
    def is_exact(self) -> bool:
        """Whether the equation holds."""
        return self.accepted + self.recovered == self.confirmed + self.pending + self.lost


@dataclass(frozen=True)
class Snapshot:
    """The figures of a buffered producer at one moment, for metrics, health checks and tests. Times
    are in seconds, sizes in bytes.

    ``balance`` is exact; it and all other figures of the buffer are of the same moment.
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
    """The sink's last answer, if it has not taken a batch since."""
    journal_error: str | None
    journal_takes: bool
    """Whether the journal takes requests: neither full nor refused by its disk."""
    lost: Mapping[str, int]
    """How many requests were lost, by reason."""


class BufferState(Enum):
    """Where a request goes that is accepted now.

    ========  =========================  ====================  =====================================
    state     a new request goes         the journal is read   left when
    ========  =========================  ====================  =====================================
    DIRECT    into memory                no: memory holds all  memory comes to the high mark:
                                         that is in it         SPILLING; without a journal BLOCKED
    SPILLING  into the journal only      no                    memory falls to the low mark:
                                                               DRAINING
    DRAINING  into the journal only      yes, in order         read up: DIRECT; high mark: SPILLING
    BLOCKED   nowhere: the policy for a  yes, if there is one  it has room again, or the disk does:
              full buffer decides                              SPILLING, DRAINING or DIRECT
    ========  =========================  ====================  =====================================

    All in memory is older than all that is only in the journal, so order is kept across the two.
    Between the low and the high mark the state stays what it is: it does not flutter. With
    write-ahead, "into memory" means into the journal first.
    """

    DIRECT = "direct"
    SPILLING = "spilling"
    DRAINING = "draining"
    BLOCKED = "blocked"

    def after(self, share: float, *, has_journal: bool, is_read_up: bool) -> BufferState:
        """The state that this share of the memory leads to; ``is_read_up``: nothing is in the
        journal only. Whether the journal takes anything is for the buffer to know.
        """
        if not has_journal:
            return BufferState.BLOCKED if share >= 1 else BufferState.DIRECT
        if share >= 1:
            return BufferState.SPILLING
        is_draining = self is BufferState.DRAINING or (
            share <= _LOW if self is BufferState.SPILLING else not is_read_up
        )
        if not is_draining:
            return self
        return BufferState.DIRECT if is_read_up else BufferState.DRAINING
