"""Wakes Java consumers when a consumer of ours has died.

A Java consumer reacts to changes of the queue's children only, not to a lock that vanishes (Curator's F7): what a dead consumer held
waits for it until the next put. Consumers of leaderq watch the locks themselves. For Java's sake every queue object with a lock path
watches the members: when one vanishes, it waits a moment, looks whether items lie there that nobody has locked, and *pokes*: creates and
deletes a znode in one multi, which nobody ever sees, but which fires every watch on the children. Several may poke; that does no harm.
"""

from __future__ import annotations

import logging
import random
import threading

from leaderq.errors import ConnectionLost, LeaderqError, NoNode
from leaderq.queues.consuming.operations import now_ms
from leaderq.queues.places import Places
from leaderq.queues.wire.kinds import Kind
from leaderq.queues.wire.names import due_ms_of, is_item
from leaderq.zookeeper import Create, Delete, Session, SessionState, Subscription, WatchEvent

log = logging.getLogger(__name__)

POKE = "poke"
_MOMENT_S = 0.2
_AGAIN_S = 1.0


class Warden:
    """One thread, asleep unless a member vanishes. For queues with a lock path only."""

    def __init__(self, session: Session, places: Places, kind: Kind) -> None:
        self._session = session
        self._places = places
        self._kind = kind
        self._woken = threading.Event()
        self._is_closed = threading.Event()
        self._members: set[str] = set()
        self._subscription: Subscription | None = None
        self._thread = threading.Thread(target=self._run, name="leaderq-queue-warden", daemon=True)
        self.poked = 0

    def start(self) -> None:
        """Begin to watch."""
        self._woken.set()
        self._thread.start()

    def close(self) -> None:
        """End; returns at once."""
        self._is_closed.set()
        self._woken.set()
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def _run(self) -> None:
        while not self._is_closed.is_set():
            self._woken.wait()
            self._woken.clear()
            try:
                self._look()
            except ConnectionLost:
                self._is_closed.wait(_AGAIN_S)
                self._woken.set()
            except LeaderqError as exc:
                log.warning("the consumers of %s cannot be watched: %s", self._places.path, exc)
                self._is_closed.wait(_AGAIN_S * 10)
                self._woken.set()

    def _look(self) -> None:
        if self._session.state is SessionState.CLOSED:
            self._is_closed.set()
            return
        if self._subscription is None:
            self._subscription = self._session.watch_node(self._places.members, self._changed)
        members = set(self._children(self._places.members))
        has_lost = bool(self._members - members)
        self._members = members
        if has_lost and not self._is_closed.wait(_MOMENT_S + random.random() * _MOMENT_S):
            self._poke_if_idle()

    def _poke_if_idle(self) -> None:
        """Whoever is awake has taken what was freed by now; what still lies there needs somebody to be woken."""
        locked = set(self._children(self._places.lock_path or ""))
        now = now_ms()
        free = (name for name in self._children(self._places.path) if is_item(self._kind, name) and name not in locked)
        if any(self._kind is not Kind.DELAY or due_ms_of(name) <= now for name in free):
            poke = self._places.item(POKE)
            self._session.multi([Create(poke), Delete(poke)])
            self.poked += 1

    def _children(self, path: str) -> list[str]:
        try:
            return self._session.children(path)
        except NoNode:
            return []

    def _changed(self, _event: WatchEvent) -> None:
        self._woken.set()
