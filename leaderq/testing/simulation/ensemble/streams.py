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
    """Messages from one server to another. ``enter`` lets the receiver act on one."""

    def __init__(self, settings: EnsembleSettings, enter: Enter) -> None:
        self._settings = settings
        self._enter = enter
        self._under_way: deque[Arrival] = deque()
        self._held: deque[tuple[str, Arrival]] = deque()
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
        """Nothing that is sent from now on arrives."""
        self._is_cut = True

    def heal(self) -> None:
        """What was held back is under way again."""
        self._is_cut = False
        held, self._held = self._held, deque()
        for what, arrival in held:
            self._put(what, arrival)

    def _put(self, what: str, arrival: Arrival) -> None:
        if self._is_cut:
            self._held.append((what, arrival))
            return
        now_s = self._settings.now()
        self._last_due_s = max(self._last_due_s, now_s + self._settings.delay(what))
        self._under_way.append(arrival)
        self._settings.at(self._last_due_s - now_s, self._arrive)

    def _arrive(self) -> None:
        act, args = self._under_way.popleft()
        self._enter(act, *args)


class PeerLink:
    """The two streams between a leader and a follower."""

    def __init__(self, settings: EnsembleSettings, leader: Enter, follower: Enter) -> None:
        self.down = Stream(settings, follower)
        self.up = Stream(settings, leader)

    def cut(self) -> None:
        """See :meth:`Stream.cut`."""
        self.down.cut()
        self.up.cut()

    def heal(self) -> None:
        """See :meth:`Stream.heal`."""
        self.down.heal()
        self.up.heal()
