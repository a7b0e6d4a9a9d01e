"""Whether consumers rest: because the user of this queue said so here, or an operator did in
ZooKeeper, for all of them.

The operator's wish is the znode ``<path>-meta/control``, ``{"paused": true}``. It is persistent, so
it also holds for consumers that come later. No znode, or one that cannot be understood, pauses
nobody. Java's consumers do not know of it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from leaderq.errors import NoNode
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.zookeeper import Session, Subscription, WatchEvent

log = logging.getLogger(__name__)


def wants_pause(data: bytes) -> bool:
    """Whether the control znode's data asks consumers to pause (pure); what cannot be read asks for
    nothing.
    """
    try:
        said = json.loads(data)
    except ValueError:
        return False
    return isinstance(said, dict) and said.get("paused") is True


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
        return self.by_user or self._by_operator

    def set(self, paused: bool) -> None:
        self.by_user = paused
        self._notify()

    def refresh(self) -> None:
        """Read the operator's wish, if it may have changed. Raises what the session raises."""
        if not self._is_stale:
            return
        if self._subscription is None:
            self._subscription = self._session.watch_node(self._paths.control, self._changed)
        self._is_stale = False  # before reading: what comes meanwhile makes it stale again
        try:
            paused = wants_pause(self._session.get(self._paths.control)[0])
        except NoNode:
            paused = False
        except BaseException:
            self._is_stale = True
            raise
        if paused is not self._by_operator:
            log.info(
                "consumers paused by an operator queue=%s"
                if paused
                else "consumers resumed by an operator queue=%s",
                self._paths.path,
            )
            self._by_operator = paused
            self._notify()

    def close(self) -> None:
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def _changed(self, _event: WatchEvent) -> None:
        self._is_stale = True
        self._notify()
