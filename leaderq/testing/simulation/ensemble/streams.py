"""The connection between a leader and a follower: two streams of messages, each in order.

As with TCP, what is sent while the two are cut off from each other arrives when the cut is over,
unless the receiver has closed its end meanwhile. The end of a stream arrives after everything that
was sent before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from leaderq.testing.simulation.ensemble.settings import EnsembleSettings

Enter = Callable[..., None]
Arrival = tuple[Callable[..., object], tuple[Any, ...]]


class Stream:
    """Messages from one server to another. ``enter`` lets the receiver act on one.

    Each message has a timer. When any timer runs out, the oldest message under way arrives. If a
    timer runs out during a cut, it is set again when the cut heals.
    """

    def __init__(self, settings: EnsembleSettings, enter: Enter) -> None:
        self._settings = settings
        self._enter = enter
        self._under_way: deque[Arrival] = deque()
        self._overdue: list[str] = []  # timers to be set when the cut heals
        self._last_due_s = 0.0
        self._is_cut = False
        self.is_open = True

    def send(self, what: str, act: Callable[..., object], *args: Any) -> None:
        """Let the receiver call ``act`` when the message has arrived; ``what`` names its delay."""
        if self.is_open:
            self._put(what, (act, args))

    def end(self, act: Callable[..., object], *args: Any) -> None:
        """Close the stream; the receiver calls ``act`` when it has read everything."""
        if self.is_open:
            self._put("end", (act, args))
            self.is_open = False

    def cut(self) -> None:
        """Let nothing arrive from now on, not even what is under way."""
        self._is_cut = True

    def heal(self) -> None:
        """Send what was held back on its way again."""
        self._is_cut = False
        overdue, self._overdue = self._overdue, []
        for what in overdue:
            self._set_timer(what)

    def _put(self, what: str, arrival: Arrival) -> None:
        self._under_way.append(arrival)
        if self._is_cut:
            self._overdue.append(what)
        else:
            self._set_timer(what)

    def _set_timer(self, what: str) -> None:
        now_s = self._settings.now()
        self._last_due_s = max(self._last_due_s, now_s + self._settings.delay(what))
        self._settings.at(self._last_due_s - now_s, self._arrive)

    def _arrive(self) -> None:
        if self._is_cut:
            self._overdue.append("again")
        else:
            act, args = self._under_way.popleft()
            self._enter(act, *args)


class PeerLink:
    """The two streams between a leader and a follower."""

    def __init__(self, settings: EnsembleSettings, leader: Enter, follower: Enter) -> None:
        self.down = Stream(settings, follower)
        self.up = Stream(settings, leader)

    def cut(self, *, only_down: bool = False) -> None:
        """See :meth:`Stream.cut`."""
        self.down.cut()
        if not only_down:
            self.up.cut()

    def heal(self) -> None:
        """See :meth:`Stream.heal`."""
        self.down.heal()
        self.up.heal()
