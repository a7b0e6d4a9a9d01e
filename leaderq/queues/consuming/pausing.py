"""Whether consumers rest: because the user of this queue said so here, or an operator did in ZooKeeper, for all of them.

The operator's wish is the znode ``<path>-meta/control`` (JSON, ``{"paused": true}``). No znode, or one that cannot be understood, pauses
nobody.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable

from leaderq.errors import NoNode
from leaderq.queues.places import Places
from leaderq.zookeeper import Session, Subscription, WatchEvent

log = logging.getLogger(__name__)


class Pausing:
    """Refreshed by the engine's thread; its watch comes on the session's; may be asked on any."""

    def __init__(self, session: Session, places: Places, stirred: Callable[[], object]) -> None:
        self._session = session
        self._places = places
        self._stirred = stirred
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
        self._stirred()

    def refresh(self) -> None:
        """Read the operator's wish, if it may have changed. Raises what the session raises."""
        if not self._is_stale:
            return
        if self._subscription is None:
            self._subscription = self._session.watch_node(self._places.control, self._changed)
        self._is_stale = False
        try:
            data, _ = self._session.get(self._places.control)
            wish = json.loads(data)
            paused = isinstance(wish, dict) and wish.get("paused") is True
        except NoNode:
            paused = False
        except ValueError:
            log.warning("%s cannot be understood, and pauses nobody", self._places.control)
            paused = False
        if paused is not self._by_operator:
            log.info("queue %s: an operator %s its consumers", self._places.path, "paused" if paused else "resumed")
            self._by_operator = paused
            self._stirred()

    def close(self) -> None:
        """Watch no more."""
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def _changed(self, _event: WatchEvent) -> None:
        self._is_stale = True
        self._stirred()
