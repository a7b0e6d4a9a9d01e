"""What became of the requests: counted by the writer alone, readable on any thread, and free of charge for who posts.

Nothing is counted when a request comes in: what came in is what the writer took, plus what stands in the line. The
writer counts by the chunk (all that it found in the line, up to a cap), and those within a chunk by the iterator that
doles it out, whose ``__length_hint__`` says how many are still to come. A chunk's figures are published as one tuple,
so a reader never mixes two.

The age of the oldest that waits is had without a time-stamp on each: now and then the writer notes the time and how
many requests had come in by then. Whatever came later is younger than that.
"""

from __future__ import annotations

import itertools
import operator
import threading
from collections import deque
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeAlias

from leaderq.clock import now_s

RATE_OVER_S = 10.0
_RATE_EVERY_S = 1.0
_MARK_EVERY_S = 0.001

Turns: TypeAlias = "itertools.repeat[tuple[()]]"
"""Doles out the requests of a chunk: one turn for each that is still to come."""
NO_TURNS: Turns = itertools.repeat((), 0)


@dataclass(frozen=True)
class Stats:
    """A queue at one moment. At rest ``accepted == applied + failed + expired + cancelled``; at work add ``depth`` and
    ``in_hand``.

    *Not guaranteed:* while the writer works a request may be counted in two of these, or in none, for an instant.
    """

    depth: int
    """Requests that wait in the line."""
    in_hand: int
    """Requests that the handler works on now: 0 or 1, or a batch."""
    waiting: int
    """Producers that wait for room."""
    oldest_age_s: float
    """How long the oldest in the line has waited: not less than the truth (but for the time in which the writer wakes), and
    more by a millisecond, a hundredth, or one call of the handler, whichever is most."""
    rate_per_s: float
    """Requests ended per second, over the last ten seconds."""
    accepted: int
    """Requests that got in."""
    applied: int
    failed: int
    """Requests for which the handler raised, or whose outcome the next queue of a chain did not take."""
    expired: int
    """Requests not begun by their deadline."""
    cancelled: int
    """Requests cancelled by who submitted them, or because the queue was closed."""
    refused: int
    """Requests that did not get in: no room in time, or the queue closed."""


class Account:
    """The counts of one queue; all is written by its writer, but ``swept``."""

    __slots__ = (
        "_line",
        "_marks",
        "_now",
        "_rates",
        "_sweeping",
        "cancelled",
        "expired",
        "failed",
        "progress",
        "stops",
        "swept",
    )

    def __init__(self, line: SimpleQueue[Any]) -> None:
        self._line = line
        self._sweeping = threading.RLock()  # a finalizer that posts may run within
        self.failed = 0
        self.expired = 0
        self.cancelled = 0
        self.swept = 0
        """Requests taken out of the line by who closed it."""
        self.stops = 0
        """How many in the line are ``STOP``."""
        self.progress: tuple[int, Turns, int] = (0, NO_TURNS, 0)
        """Taken by the end of the chunk, what doles out the rest of it, and how many of it are in hand at a time."""
        start_s = now_s()
        self._marks: deque[tuple[float, int]] = deque([(start_s, 0)])
        self._rates: deque[tuple[float, int]] = deque([(start_s, 0)], maxlen=int(RATE_OVER_S / _RATE_EVERY_S) + 2)

    # -- for the writer ----------------------------------------------------------------------------------------------

    def begin(self, taken: int, turns: Turns, in_hand: int, *, was_idle: bool) -> None:
        """A chunk begins, after which ``taken`` will have been taken in all."""
        self.progress = (taken, turns, in_hand)
        now = now_s()
        begun = taken - operator.length_hint(turns)
        marks = self._marks
        if was_idle:
            # All that stands in the line now came after the one for which the writer woke.
            marks.clear()
            marks.append((now, begun))
        else:
            came_in = begun + self._line.qsize()
            if now - marks[-1][0] > max(_MARK_EVERY_S, (now - marks[0][0]) / 100):
                marks.append((now, came_in))
            while len(marks) > 1 and marks[1][1] <= begun:
                marks.popleft()
        if now - self._rates[-1][0] >= _RATE_EVERY_S:
            self._rates.append((now, begun - in_hand))

    def rest(self, taken: int) -> None:
        """No chunk is in hand."""
        self.progress = (taken, NO_TURNS, 0)

    def put_stop(self, stop: object) -> None:
        """Put ``stop`` into the line; one would do, but an interrupt may lose it. It does not count as a request."""
        with self._sweeping:
            self.stops += 1
            self._line.put(stop)

    def forget_stop(self) -> None:
        """``stop`` was taken out of the line."""
        with self._sweeping:
            self.stops -= 1

    def count_swept(self, count: int) -> None:
        """So many were taken out of the line by who closed the queue; on any thread."""
        with self._sweeping:
            self.swept += count

    # -- for anybody -------------------------------------------------------------------------------------------------

    def depth(self) -> int:
        """See :attr:`Stats.depth`."""
        return max(0, self._line.qsize() - self.stops)

    def oldest_age_s(self) -> float:
        """See :attr:`Stats.oldest_age_s`; 0 if none waits."""
        if not self.depth():
            return 0.0
        taken, turns, _ = self.progress
        begun = taken - operator.length_hint(turns)
        since_s = None
        for at_s, came_in in self._marks.copy():
            if since_s is None or came_in <= begun:
                since_s = at_s
        return 0.0 if since_s is None else max(0.0, now_s() - since_s)

    def rate_per_s(self) -> float:
        """See :attr:`Stats.rate_per_s`."""
        taken, turns, in_hand = self.progress
        ended, now = taken - operator.length_hint(turns) - in_hand, now_s()
        marks = list(self._rates.copy())
        # What is not marked happened within a second of the last mark, unless a chunk is in hand still.
        marks.append((now if in_hand else min(now, marks[-1][0] + _RATE_EVERY_S), ended))
        from_s = max(marks[0][0], now - RATE_OVER_S)
        return (ended - _count_at(from_s, marks)) / (now - from_s) if now > from_s else 0.0

    def stats(self, *, waiting: int, refused: int) -> Stats:
        """All of it."""
        taken, turns, in_hand = self.progress
        depth = self.depth()
        begun = taken - operator.length_hint(turns)
        ended_otherwise = self.failed + self.expired + self.cancelled
        return Stats(
            depth=depth,
            in_hand=in_hand,
            waiting=waiting,
            oldest_age_s=self.oldest_age_s(),
            rate_per_s=self.rate_per_s(),
            accepted=begun + depth + self.swept,
            applied=max(0, begun - in_hand - ended_otherwise),
            failed=self.failed,
            expired=self.expired,
            cancelled=self.cancelled + self.swept,
            refused=refused,
        )


def _count_at(at_s: float, marks: list[tuple[float, int]]) -> float:
    """What a count that rises from mark to mark stood at."""
    for (before_s, before), (after_s, after) in itertools.pairwise(marks):
        if before_s <= at_s <= after_s:
            share = (at_s - before_s) / (after_s - before_s) if after_s > before_s else 1.0
            return before + share * (after - before)
    return marks[-1][1]
