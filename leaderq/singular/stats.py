"""What became of the requests of one queue, and how long the oldest of them has waited.

The age costs producers nothing: the writer notes now and then the time and how many requests had
come in by then. Whatever came later is younger than that.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from leaderq.clock import now_s

_MARK_EVERY_S = 0.001


@dataclass(frozen=True)
class Stats:
    """A queue at one moment. At rest ``accepted == applied + failed + expired + cancelled``; at
    work add ``depth`` and ``in_hand``.

    *Not guaranteed:* while the writer works a request may be counted in two of these, or in none,
    for an instant.
    """

    depth: int
    """Requests that wait."""
    in_hand: int
    """Requests that the handler works on now: 0 or 1, or a batch."""
    waiting: int
    """Producers that wait for room."""
    oldest_age_s: float
    """How long the oldest request has waited. Never less than the truth; more by 64 requests, or
    by what the handler has in hand, at most."""
    accepted: int
    """Requests that got in."""
    applied: int
    failed: int
    """Requests for which the handler raised, or whose outcome the next queue did not take."""
    expired: int
    """Requests not begun by their deadline."""
    cancelled: int
    """Requests cancelled by whoever submitted them, or because the queue was closed."""
    refused: int
    """Requests that did not get in: no room in time, or the queue was closed."""


class AgeMarks:
    """Tells how long the oldest request has waited at most. Written by the writer alone."""

    def __init__(self) -> None:
        self._marks: deque[tuple[float, int]] = deque([(now_s(), 0)])

    def note(self, begun: int, came_in: int) -> None:
        """Note that ``came_in`` requests had come in by now, of which ``begun`` were begun."""
        now, marks = now_s(), self._marks
        if now - marks[-1][0] > max(_MARK_EVERY_S, (now - marks[0][0]) / 100):
            marks.append((now, came_in))
        while len(marks) > 1 and marks[1][1] <= begun:
            marks.popleft()

    def restart(self, begun: int) -> None:
        """Nothing had waited until now: all that waits came later."""
        marks = self._marks
        while len(marks) > 1:
            marks.popleft()
        marks[0] = (now_s(), begun)

    def oldest_age_s(self, begun: int) -> float:
        """How long the request after the ``begun`` first ones has waited, at most."""
        since_s = 0.0
        for number, (at_s, came_in) in enumerate(self._marks.copy()):
            if number == 0 or came_in <= begun:
                since_s = at_s
        return max(0.0, now_s() - since_s)
