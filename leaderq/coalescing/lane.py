"""The automaton of one key with what a coordinator keeps beside it: counters, and the quiet that a debounced key waits for.

Debouncing needs no state of its own: the *quiet* is a head like any other. A request to an idle key finds the quiet running,
so it waits; further ones are declined, or replace it, and prolong the quiet; when the quiet is over it leaves, and the
waiting one is the head.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from leaderq.coalescing.automaton import TrafficAutomaton
from leaderq.coalescing.rules import Debounce
from leaderq.coalescing.token import Token

AnyToken = Token[Any]


@dataclass(slots=True)
class Pace:
    """When a debounced key may run."""

    debounce: Debounce
    quiet: AnyToken
    """The head that stands for the quiet."""
    first_s: float | None = None
    """When the first request since the last run began came."""
    due_s: float = 0.0
    """When the quiet is over; it never rises beyond the maximum delay."""

    def request_came(self, now: float) -> None:
        """The quiet is disturbed: it lasts longer, if it may."""
        self.first_s = now if self.first_s is None else self.first_s
        self.due_s = self.debounce.due_s(first_s=self.first_s, now=now)


class Lane(TrafficAutomaton[AnyToken]):
    """See the module. Pure: no lock, no thread, no clock."""

    __slots__ = ("blocked", "declined", "idle_since_s", "is_watched", "pace", "runs")

    def __init__(self, waiters: int) -> None:
        self.line: tuple[AnyToken, ...] = ()
        self.waiters = waiters
        self.runs = 0
        self.blocked = 0
        self.declined = 0
        self.idle_since_s = 0.0
        self.is_watched = False
        """Whether a timekeeper will look at this key by itself."""
        self.pace: Pace | None = None
        """Of a debounced key."""

    @property
    def is_quiet(self) -> bool:
        """Whether the head is the quiet."""
        return self.pace is not None and bool(self.line) and self.line[0] is self.pace.quiet

    def due_s(self, safe_timeout_s: float | None) -> float | None:
        """When something is to be done about this key although nobody comes."""
        if self.is_quiet and self.pace is not None:
            return self.pace.due_s
        if safe_timeout_s is not None and self.line and (len(self.line) > 1 or self.line[0].followers):
            return self.line[0].began_s + safe_timeout_s
        return None

    def is_head_overdue(self, safe_timeout_s: float | None, now: float) -> bool:
        """Whether whoever runs has outlived the safe time-out."""
        if safe_timeout_s is None or not self.line or self.is_quiet:
            return False
        return now >= self.line[0].began_s + safe_timeout_s

    def is_next_due(self, now: float) -> bool:
        """Whether who waits first may run once the head is gone: always, unless it is to be quiet first."""
        return self.pace is None or self.pace.first_s is None or now >= self.pace.due_s

    def put_quiet_first(self) -> None:
        """Whoever came to the head is not due yet: it waits on, behind the quiet."""
        if self.pace is not None:
            self.line = (self.pace.quiet, *self.line)
