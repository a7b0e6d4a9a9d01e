"""What the requests for keys saw, on one clock, and whether that is what coalescing promises: one
runs, so many wait, and whoever was declined is covered by a run that begins after it came.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

TIMES = int(os.environ.get("LEADERQ_TEST_HISTORIES", "1"))
"""How many times as long as in the ordinary test run the histories are."""


class What(Enum):
    CAME = "came"
    """Noted before the request."""
    WAITS = "waits"
    """Noted after it was known."""
    DECLINED = "declined"
    BEGAN = "began"
    ENDED = "ended"
    """Noted before the key is given back."""
    GAVE_UP = "gave up"
    """Noted before it waits no more."""
    DIED = "died"
    """With its run, or its wait; noted by somebody else, or before its run began."""


@dataclass(frozen=True)
class Event:
    """Something that happened to a request for a key."""

    at: float
    key: str
    request: object
    what: What


@dataclass
class TurnHistory:
    """Notes events, from any thread."""

    events: list[Event] = field(default_factory=list)
    _ticks: itertools.count[int] = field(default_factory=itertools.count)

    def note(self, key: str, request: object, what: What) -> None:
        self.events.append(Event(next(self._ticks), key, request, what))

    def __str__(self) -> str:
        counts = Counter(one.what for one in self.events)
        return ", ".join(f"{counts[what]} {what.value}" for what in What)


def faults(events: Iterable[Event], *, waiters: int = 1) -> list[str]:
    """All in which the events break the promise, as sentences; none if it was kept."""
    by_key: dict[str, list[Event]] = defaultdict(list)
    for one in sorted(events, key=lambda one: one.at):
        by_key[one.key].append(one)
    return [
        fault
        for key, of_key in by_key.items()
        for fault in (*_crowds(key, of_key, waiters), *_uncovered(key, of_key))
    ]


def _crowds(key: str, events: list[Event], waiters: int) -> Iterable[str]:
    """Two run, or more stand in line than may."""
    running: set[object] = set()
    in_line: set[object] = set()
    over: set[object] = set()
    for one in events:
        if one.what in (What.ENDED, What.GAVE_UP, What.DIED):
            if one.what is What.ENDED and one.request not in running:
                yield f"{key}: {one.request} ended at {one.at} and did not run"
            running.discard(one.request)
            in_line.discard(one.request)
            over.add(one.request)
        elif one.what in (What.BEGAN, What.WAITS) and one.request not in over:
            in_line.add(one.request)
            if one.what is What.BEGAN:
                running.add(one.request)
            if len(running) > 1:
                yield f"{key}: {len(running)} run at {one.at}: {running}"
            if len(in_line) > waiters + 1:
                yield f"{key}: {len(in_line)} are in line at {one.at}: {in_line}"
    if running:
        yield f"{key}: {running} never ended"


def _uncovered(key: str, events: list[Event]) -> Iterable[str]:
    came = {one.request: one.at for one in events if one.what is What.CAME}
    last = max((one.at for one in events if one.what is What.BEGAN), default=-1.0)
    for one in events:
        if one.what is What.DECLINED and came[one.request] > last:
            yield (
                f"{key}: {one.request} came at {came[one.request]} and was declined; the last run"
                f" began at {last}"
            )
