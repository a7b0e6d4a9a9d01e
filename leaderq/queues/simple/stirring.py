"""What those who wait for something hear: that something stirred, and whether it all is over."""

from __future__ import annotations

import threading

from leaderq.clock import now_s
from leaderq.errors import ConnectionLost, LeaderqError, NoNode, NotConnected, QueueClosed, SessionClosed, SessionExpired
from leaderq.queues.tallying import Tally
from leaderq.zookeeper import Session, SessionState

LOOK_AGAIN_S = 1.0
"""How long those without a watch, or a connection, wait before they try again unasked."""


class Stirring:
    """A counter of what happened, to be waited for. Thread-safe; ``lock`` guards the counter, and what its owner wants guarded with it."""

    def __init__(self, session: Session, path: str) -> None:
        self._session = session
        self._path = path
        self.lock = threading.Lock()
        self._changed = threading.Condition(self.lock)
        self._count = 0
        self._is_closed = False

    @property
    def count(self) -> int:
        """How often something has stirred; read it before looking, and hand it to :meth:`wait`."""
        return self._count

    def stir(self) -> None:
        """Something happened. Under the lock."""
        self._count += 1
        self._changed.notify_all()

    def wait(self, seen: int, limit_s: float) -> None:
        """Until something has happened since the count was ``seen``, ``limit_s`` at most."""
        with self.lock:
            self._changed.wait_for(lambda: self._count != seen, max(0.0, limit_s))

    def wait_for_connection(self, deadline: float) -> None:
        """Until the session is connected, as far as is known: what is sent without a connection is in doubt for no good reason.

        :raises NotConnected: it is not, by ``deadline``.
        """
        while True:
            seen = self._count
            self.guard()
            if self._session.state is SessionState.CONNECTED:
                return
            left_s = deadline - now_s()
            if left_s <= 0:
                raise NotConnected(
                    f"there was no connection in the time given; nothing was sent to {self._path}", path=self._path
                )
            self.wait(seen, min(left_s, LOOK_AGAIN_S))

    def close(self) -> bool:
        """Nobody shall wait any more; whether this was the first time."""
        with self.lock:
            is_first = not self._is_closed
            self._is_closed = True
            self.stir()
        return is_first

    def guard(self) -> None:
        """Raise if it is over.

        :raises QueueClosed: so it was said.
        :raises SessionClosed: the session's owner said so.
        """
        if self._is_closed:
            raise QueueClosed(f"queue {self._path} was closed")
        if self._session.state is SessionState.CLOSED:
            raise SessionClosed("the session was closed by its owner", path=self._path)


class OpenedAtUse:
    """A tally that is opened when it is first needed, through any outage."""

    def __init__(self, tally: Tally, stirring: Stirring) -> None:
        self.tally = tally
        self._stirring = stirring
        self._lock = threading.Lock()
        self._is_open = False

    def open(self, deadline: float) -> None:
        """Return when it is open.

        :raises NotConnected: it could not be opened by ``deadline``, so nothing was sent.
        """
        while not self._is_open:
            self._stirring.guard()
            seen = self._stirring.count
            problem = self.try_to_open()
            if problem is None:
                return
            if now_s() >= deadline:
                raise NotConnected(f"{self.tally.path} could not be made: {problem}", path=self.tally.path) from problem
            self._stirring.wait(seen, min(LOOK_AGAIN_S, deadline - now_s()))

    def try_to_open(self) -> LeaderqError | None:
        """Why it could not be opened now, if so."""
        with self._lock:
            try:
                if not self._is_open:
                    self.tally.open()
                    self._is_open = True
            except (ConnectionLost, SessionExpired, NoNode) as exc:  # NoNode: its parent was taken away that very moment
                return exc
        return None
