"""Messages in one direction of a connection, of a client's or between two servers, each in order.

As with TCP, what is sent while the two ends are cut off from each other arrives when the cut is
over, unless the receiver has closed its end meanwhile. The end of a stream arrives after everything
that was sent before it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from leaderq.testing.simulation.ensemble.settings import EnsembleSettings

Enter = Callable[..., None]


class Stream:
    """Messages in one direction. ``now()`` is the time in seconds, ``at(delay_s, act)`` calls
    ``act()`` later; ``delay(what)`` is how many seconds a message takes. ``enter`` lets the
    receiver act on one; without it the receiver always can.

    Each message has a timer. When any timer runs out, the oldest message under way arrives. Timers
    that run out during a cut are set again when it heals.
    """

    __slots__ = (
        "_at", "_delay", "_enter", "_last_due_s", "_now", "_overdue", "_under_way", "is_cut",
        "is_open",
    )  # fmt: skip

    def __init__(
        self,
        now: Callable[[], float],
        at: Callable[[float, Callable[[], None]], object],
        delay: Callable[[str], float],
        enter: Enter | None = None,
    ) -> None:
        self._now = now
        self._at = at
        self._delay = delay
        self._enter = enter
        self._under_way: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._overdue: list[str] = []  # timers to be set when the cut heals
        self._last_due_s = 0.0
        self.is_cut = False
        self.is_open = True

    def send(self, what: str, act: Callable[..., object], *args: Any) -> None:
        """Let the receiver call ``act`` when the message has arrived; ``what`` names its delay."""
        if not self.is_open:
            return
        enter = self._enter
        self._under_way.append((act, args) if enter is None else (enter, (act, *args)))
        if self.is_cut:
            self._overdue.append(what)
        else:
            self._set_timer(what)

    def end(self, act: Callable[..., object], *args: Any) -> None:
        """Close the stream; the receiver calls ``act`` when it has read everything."""
        self.send("end", act, *args)
        self.is_open = False

    def drop(self) -> None:
        """Lose what is under way, and whatever is sent later."""
        self.is_open = False
        self._under_way.clear()

    def cut(self) -> None:
        """Let nothing arrive from now on, not even what is under way."""
        self.is_cut = True

    def put_back(self, act: Callable[..., object], *args: Any) -> None:
        """Hold back a message that arrives at the moment of a cut: it arrives again when the cut
        heals.
        """
        self._under_way.appendleft((act, args))
        self._overdue.append("again")

    def heal(self) -> None:
        """Send what was held back on its way again."""
        self.is_cut = False
        overdue, self._overdue = self._overdue, []
        for what in overdue:
            self._set_timer(what)

    def _set_timer(self, what: str) -> None:
        now_s = self._now()
        due_s = now_s + self._delay(what)
        if due_s > self._last_due_s:
            self._last_due_s = due_s
        self._at(self._last_due_s - now_s, self._arrive)

    def _arrive(self) -> None:
        if self.is_cut:
            self._overdue.append("again")
        elif self._under_way:  # else it was dropped
            act, args = self._under_way.popleft()
            act(*args)


def stream(settings: EnsembleSettings, enter: Enter) -> Stream:
    """A stream between servers."""
    return Stream(settings.now, settings.at, settings.delay, enter)


class PeerLink:
    """The two streams between a leader and a follower."""

    def __init__(self, settings: EnsembleSettings, leader: Enter, follower: Enter) -> None:
        self.down = stream(settings, follower)
        self.up = stream(settings, leader)

    def cut(self, *, only_down: bool = False) -> None:
        """See :meth:`Stream.cut`."""
        self.down.cut()
        if not only_down:
            self.up.cut()

    def heal(self) -> None:
        """See :meth:`Stream.heal`."""
        self.down.heal()
        self.up.heal()
