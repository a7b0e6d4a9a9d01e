"""The connection between a leader and a follower: two streams of messages, each in order.

As with TCP, what is sent while the two are cut off from each other arrives when they are not any
more, unless the receiver has closed its end meanwhile; and the end of a stream arrives after all
that was sent before.
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

    Each message has a timer; a timer lets the first message arrive that has not, whoever it was
    set for. Of a timer that runs out during a cut only the name is kept, until the cut heals.
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
        """Let the receiver do this when the message has arrived; ``what`` names its delay."""
        if self.is_open:
            self._put(what, (act, args))

    def end(self, act: Callable[..., object], *args: Any) -> None:
        """The sender closes the stream; the receiver does this when it has read all."""
        if self.is_open:
            self._put("end", (act, args))
            self.is_open = False

    def cut(self) -> None:
        """Nothing arrives from now on, not even what is under way."""
        self._is_cut = True

    def heal(self) -> None:
        """What was held back is under way again."""
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
