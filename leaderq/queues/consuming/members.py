"""The consumers of one queue, as they know of each other, and each one's share.

A consumer is an ephemeral child of ``<path>-meta/members``. Java consumers are not among them; with these one competes.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from contextlib import suppress

from leaderq.errors import LeaderqError, NodeExists, NoNode
from leaderq.queues.consuming.claim import Hold
from leaderq.queues.consuming.waiting import Share, share_of
from leaderq.queues.places import Places
from leaderq.queues.tallying import Tally
from leaderq.zookeeper import Session, WatchEvent
from leaderq.zookeeper.paths import name_of

log = logging.getLogger(__name__)


class Members:
    """Makes this consumer a member, and knows how many there are. Used by the engine's thread; its watch comes on the session's."""

    def __init__(self, session: Session, places: Places, name: str, stirred: Callable[[], object]) -> None:
        self._session = session
        self._places = places
        self._name = name
        self._stirred = stirred
        self._tally: Tally | None = None
        self._is_stale = True
        self._mark: tuple[int | None, str] | None = None
        self.share: Share | None = None

    def enter(self) -> Hold:
        """Stand among the consumers, and be able to claim. Raises what the session raises."""
        places, mark = self._places, self._mark_of_session()
        member = f"{places.members}/{mark}"
        if places.lock_path is not None:
            tally = Tally(self._session, member, ephemeral=True, data=self._name.encode())
            tally.open()
            self._session.ensure_path(places.lock_path)
        else:
            if self._tally is None:
                tally = Tally(self._session, f"{places.tallies}/{mark}")
                tally.open()
                self._tally = tally
            tally = self._tally
            self._session.ensure_path(places.members)
            with suppress(NodeExists):  # by a former try whose answer was lost
                self._session.create(member, self._name.encode(), ephemeral=True)
        self._is_stale = True
        return Hold(places, tally, member)

    def _mark_of_session(self) -> str:
        """The same for all tries within one session: a lost answer must not leave a member behind that nobody is."""
        session_id = self._session.id
        if self._mark is None or self._mark[0] != session_id:
            self._mark = (session_id, uuid.uuid4().hex)
        return self._mark[1]

    def is_standing(self, hold: Hold, session_id: int | None) -> bool:
        """Whether the member entered in the session of this id still is one, as far as is known."""
        return session_id == self._session.id and not (hold.is_locking and hold.tally.is_over)

    def refresh(self, hold: Hold) -> None:
        """Count the others again, if that may have changed."""
        if not self._is_stale:
            return
        self._is_stale = False
        try:
            names = sorted(self._session.children(self._places.members, self._changed))
        except NoNode:
            names = []
        own = name_of(hold.member)
        self.share = share_of(names.index(own), len(names)) if own in names else None

    def leave(self, hold: Hold, timeout_s: float) -> bool:
        """Stand no more; gives whether all that was to be written was."""
        is_clean = hold.tally.close(timeout_s)
        if not hold.is_locking:
            try:
                self._session.delete(hold.member, timeout_s=1.0)
            except LeaderqError as exc:
                log.debug("%s goes with its session: %s", hold.member, exc)
        return is_clean

    def _changed(self, _event: WatchEvent) -> None:
        self._is_stale = True
        self._stirred()
