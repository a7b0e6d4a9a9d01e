"""Whether consumers pause: because the user of a queue object said so, or an operator, for all.

The operator's wish is the znode ``<path>-meta/control`` (JSON, ``{"paused": true}``). It is
persistent, so it also holds for consumers that come later; Java's do not know of it. No znode, or
one that cannot be understood, pauses nobody.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any

from leaderq.errors import BadVersion, NodeExists, NoNode, RequestRefused
from leaderq.queues.connected import PATIENCE_S, retry_until_connected
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.zookeeper import Session, Subscription, WatchEvent
from leaderq.zookeeper.paths import parent_of

log = logging.getLogger(__name__)
_TRIES = 10


def wants_pause(data: bytes) -> bool:
    """Whether the control znode's data asks consumers to pause (pure); what cannot be read asks for
    nothing.
    """
    return _wishes(data).get("paused") is True


def is_paused(session: Session, paths: QueuePaths, *, patience_s: float = PATIENCE_S) -> bool:
    """Whether an operator wants the consumers to pause."""
    try:
        return wants_pause(retry_until_connected(session, lambda: session.get(paths.control), patience_s)[0])
    except NoNode:
        return False


def set_paused(session: Session, paths: QueuePaths, paused: bool, *, patience_s: float = PATIENCE_S) -> bool:
    """Write the wish; returns whether that changed anything. Other wishes stay as they are.

    :raises RequestRefused: others write there all the time.
    """
    for _ in range(_TRIES):
        changed = retry_until_connected(session, lambda: _try(session, paths.control, paused), patience_s)
        if changed is not None:
            return changed
    raise RequestRefused(f"{paths.control} is written by others all the time; try again")


def _try(session: Session, path: str, paused: bool) -> bool | None:
    """One attempt; ``None`` if somebody wrote first."""
    try:
        data, stat = session.get(path)
        if wants_pause(data) is paused:
            return False
        session.set(path, _encoded({**_wishes(data), "paused": paused}), stat.version)
    except BadVersion:
        return None
    except NoNode:
        if not paused:
            return False
        return _made(session, path)
    return True


def _made(session: Session, path: str) -> bool | None:
    try:
        session.ensure_path(parent_of(path))
        session.create(path, _encoded({"paused": True}))
    except (NodeExists, NoNode):
        return None
    return True


def _encoded(wishes: dict[str, Any]) -> bytes:
    return json.dumps(wishes).encode()


def _wishes(data: bytes) -> dict[str, Any]:
    try:
        said = json.loads(data)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


class PauseSwitch:
    """Refreshed by the engine's thread; its watch comes on the session's; may be asked on any."""

    def __init__(self, session: Session, paths: QueuePaths, notify: Callable[[], object]) -> None:
        self._session = session
        self._paths = paths
        self._notify = notify
        self._subscription: Subscription | None = None
        self._is_stale = True
        self._by_operator = False
        self.by_user = False

    @property
    def is_paused(self) -> bool:
        """Whether nothing new may be begun."""
        return self.by_user or self._by_operator

    def set(self, paused: bool) -> None:
        """What the user wishes."""
        self.by_user = paused
        self._notify()

    def refresh(self) -> None:
        """Read the operator's wish, if it may have changed. Raises what the session raises."""
        if not self._is_stale:
            return
        if self._subscription is None:
            self._subscription = self._session.watch_node(self._paths.control, self._changed)
        self._is_stale = False
        try:
            paused = wants_pause(self._session.get(self._paths.control)[0])
        except NoNode:
            paused = False
        if paused is not self._by_operator:
            log.info("queue %s: an operator %s its consumers", self._paths.path, "paused" if paused else "resumed")
            self._by_operator = paused
            self._notify()

    def close(self) -> None:
        """Watch no more."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def _changed(self, _event: WatchEvent) -> None:
        self._is_stale = True
        self._notify()
