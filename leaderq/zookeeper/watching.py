"""Watches: one-shot ones that come with a read, and persistent ones that stay until closed.

One-shot watches are kept by kazoo, and removed when they fire. Persistent ones are kept here: their
events are routed from the connection thread to the thread of watches, and they are set again after
every reconnection, because the server forgets them. *After* the watch is set again its holder gets
a ``SESSION`` event, and reads again, so that it misses nothing.
"""

from __future__ import annotations

import enum
import functools
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from leaderq.base.arguments import identity_of, plain_function, require
from leaderq.errors import ConnectionLost
from leaderq.threads import primitives
from leaderq.zookeeper.paths import is_at_or_below
from leaderq.zookeeper.wire import AddWatch, RemoveWatches, WatchMode

log = logging.getLogger(__name__)


class WatchKind(enum.Enum):
    """The kind of a watch's event."""

    CREATED = 1
    DELETED = 2
    CHANGED = 3
    CHILDREN = 4
    SESSION = -1
    """No news of the znode: a one-shot watch ended with the connection or the session, so set it
    again; a persistent one was interrupted and stands again, so read again.
    """


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """Says that ``kind`` happened to ``path`` (a path of the session, without the chroot)."""

    kind: WatchKind
    path: str


Watch = Callable[[WatchEvent], object]
_KINDS = {"CHILD": WatchKind.CHILDREN, **WatchKind.__members__}  # by kazoo's names


@dataclass(frozen=True, slots=True)
class OneShot:
    """A one-shot watch in the form that kazoo keeps, in sets. Two of one callable and path are
    equal, so it is called once; kazoo's thread, which compares them, calls no code of the user's.
    """

    callback: Watch = field(compare=False)
    path: str
    _identity: object = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_identity", identity_of(self.callback))

    def __call__(self, event: Any) -> None:
        kind = _KINDS.get(event.type, WatchKind.SESSION)
        self.callback(WatchEvent(kind, self.path if event.path is None else event.path))


@dataclass(eq=False, slots=True)
class Subscription:
    """A persistent watch that lasts until ``close()``; an event under way may still arrive after
    that.
    """

    _watches: PersistentWatches
    path: str
    server_path: str
    mode: int
    callback: Watch

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Subscription({'tree' if self.mode == WatchMode.TREE else 'node'} {self.path!r})"

    def close(self) -> None:
        """End the watch; may be called twice, from any thread, connected or not. Never blocks."""
        self._watches.remove(self)

    def covers(self, kind: WatchKind, server_path: str) -> bool:
        """Whether this watch wants the event; the server sends one event for all watches of the
        session.
        """
        if self.mode == WatchMode.NODE:
            return server_path == self.server_path
        # CHILDREN is for a one-shot watch: a tree hears of the child itself.
        return kind is not WatchKind.CHILDREN and is_at_or_below(server_path, self.server_path)


class PersistentWatches:
    """The persistent watches of one session. ``send`` sends a request; ``watch`` runs a job on the
    thread of watches.
    """

    def __init__(
        self,
        *,
        send: Callable[[Any, str], primitives.Future[Any]],
        watch: Callable[[Callable[[], object]], None],
        local_path: Callable[[str], str],
    ) -> None:
        self._send = send
        self._watch = watch
        self._local_path = local_path
        self._lock = primitives.Lock()
        self.all: tuple[Subscription, ...] = ()

    def add(
        self, path: str, server_path: str, mode: int, callback: Watch
    ) -> tuple[Subscription, primitives.Future[Any]]:
        """Keep a new subscription, then ask the server for its watch; return it and the future
        answer.
        """
        require(plain_function("callback", callback))
        subscription = Subscription(self, path, server_path, mode, callback)
        with self._lock:
            self.all = (*self.all, subscription)
            return subscription, self._send(AddWatch(server_path, mode), path)

    def remove(self, subscription: Subscription) -> None:
        """Forget the subscription; if no other has the same path and mode, tell the server."""
        path, mode = subscription.server_path, subscription.mode
        with self._lock:
            if not self._has(subscription):
                return
            self.all = tuple(one for one in self.all if one is not subscription)
            if any(one.server_path == path and one.mode == mode for one in self.all):
                return
            # Under the lock: sent after that of an add, it would remove the watch just set.
            # A server before 3.9 refuses, and goes on sending: route() drops the events.
            self._send(RemoveWatches(path, WatchMode.REMOVE[mode]), subscription.path)

    def route(self, kind: int, server_path: str) -> None:
        """Queue an event for the subscriptions that want it. Runs on the connection thread."""
        event = WatchEvent(WatchKind(kind), self._local_path(server_path))
        for subscription in self.all:
            if subscription.covers(event.kind, server_path):
                self._deliver(subscription, event)

    def restore(self) -> None:
        """Set all watches again on a new connection, without waiting for the answers."""
        wanted: dict[tuple[str, int], list[Subscription]] = {}
        for one in self.all:
            wanted.setdefault((one.server_path, one.mode), []).append(one)
        for (server_path, mode), subscriptions in wanted.items():
            answer = self._send(AddWatch(server_path, mode), subscriptions[0].path)
            answer.add_done_callback(functools.partial(self._restored, subscriptions))

    def _restored(self, subscriptions: list[Subscription], done: primitives.Future[Any]) -> None:
        error = done.exception()
        if isinstance(error, ConnectionLost):
            return
        if error is not None:
            log.error("watch not set again path=%s reason=%s", subscriptions[0].path, error)
        for one in subscriptions:
            self._deliver(one, WatchEvent(WatchKind.SESSION, one.path))

    def _deliver(self, subscription: Subscription, event: WatchEvent) -> None:
        def call() -> None:
            if self._has(subscription):
                subscription.callback(event)

        self._watch(call)

    def _has(self, subscription: Subscription) -> bool:
        return subscription in self.all
