"""Who wants to hear of changes of state; each told in order, one change at a time, and none able to harm the session."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from leaderq.zookeeper.state import SessionState

log = logging.getLogger(__name__)
Listener = Callable[[SessionState], object]


class Listeners:
    """Announces states to listeners in the order they came, without a lock held while a listener runs.

    States may be announced from any thread: whoever comes first delivers for those who come meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[Listener, ...] = ()
        self._waiting: deque[SessionState] = deque()
        self._delivering = False

    def add(self, listener: Listener) -> None:
        """Tell ``listener`` of every change from now on; adding it twice tells it once."""
        with self._lock:
            if listener not in self._listeners:
                self._listeners = (*self._listeners, listener)

    def remove(self, listener: Listener) -> None:
        """Tell it no more; unknown listeners are ignored."""
        with self._lock:
            self._listeners = tuple(one for one in self._listeners if one != listener)

    def announce(self, state: SessionState) -> None:
        """Tell everyone, now or right after the changes that are being told."""
        self.put(state)
        self.deliver()

    def put(self, state: SessionState) -> None:
        """Note a change to be told by the next :meth:`deliver`; calls nobody, so it may be done under the lock that orders the changes."""
        with self._lock:
            self._waiting.append(state)

    def deliver(self) -> None:
        """Tell what is noted, unless another thread is about it: then that one goes on with ours."""
        with self._lock:
            if self._delivering:
                return
            self._delivering = True
        while True:
            with self._lock:
                if not self._waiting:
                    self._delivering = False
                    return
                state, listeners = self._waiting.popleft(), self._listeners
            for listener in listeners:
                try:
                    listener(state)
                except (Exception, SystemExit):
                    log.exception("listener %r failed on %s; the session goes on", listener, state.name)
