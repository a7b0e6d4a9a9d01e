"""A place in the line that Curator's ``LeaderLatch`` stands in, for Java and Python sharders alike.

Who is authoritative: the children of the latch's path, ``_c_<uuid4>-latch-<number>``, ephemeral;
whose text after the last ``latch-`` comes first leads. As in Java no child is left out, so whatever
else is put there may keep everybody from leading: that is said in the log.

A znode is ours if it carries our mark *and* belongs to our present session. On each failure:
**answer to its creation lost**: the mark finds it again; surplus ones are deleted; **session
expired**: a new znode under a new mark; **the path vanished**: it is made again; **no connection**:
:meth:`Latch.look` raises, and nobody must think that they lead.

Leading is known to the past only. Whatever a leader writes is fenced by ``Check(latch.node)`` in
the same multi.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from contextlib import suppress

from leaderq.errors import LeaderqError, NoNode
from leaderq.zookeeper import Session, WatchEvent
from leaderq.zookeeper.paths import join

log = logging.getLogger(__name__)

_BASE = "latch-"


def order(name: str) -> str:
    """What a child's turn goes by: Curator's ``LockInternals`` compares just this, as text."""
    return name.rpartition(_BASE)[2]


def children_made(session: Session, path: str, notify: Callable[[WatchEvent], None]) -> list[str]:
    """The children of ``path``, which is made if it is not there; ``notify`` hears of changes."""
    try:
        return session.children(path, watch=notify)
    except NoNode:
        session.ensure_path(path)
        return session.children(path, watch=notify)


class Latch:
    """See the module. Not thread-safe: one thread uses it. ``notify`` is called on a ZooKeeper
    thread when the line has changed.
    """

    def __init__(
        self, session: Session, path: str, notify: Callable[[WatchEvent], None], *, id: str = ""
    ) -> None:
        self._session = session
        self._path = path
        self._notify = notify
        self._id = id.encode()
        self._mark = str(uuid.uuid4())
        self._warned: set[str] = set()
        self.node: str | None = None
        """The path of our znode, as last seen."""

    def look(self) -> bool:
        """Stand in the line, and say whether we are its first.

        :raises ConnectionLost: that could not be found out.
        """
        own = self._own(names := self._names())
        if own is None:
            self._enlist()
            own = self._own(names := self._names())
        self.node = None if own is None else join(self._path, own)
        self._warn_of_strangers(names)
        return own is not None and min(names, key=order) == own

    def leave(self, timeout_s: float) -> None:
        """Give the place up. What cannot be deleted in ``timeout_s`` goes with the session."""
        try:
            for name in self._session.children(self._path, timeout_s=timeout_s):
                if self._mark in name:
                    self._delete(name)
        except LeaderqError as exc:
            log.debug("place in the line not given up path=%s error=%s", self._path, exc)

    def _names(self) -> list[str]:
        return children_made(self._session, self._path, self._notify)

    def _own(self, names: list[str]) -> str | None:
        """Our znode among these; those that are not (any more) are deleted on the way."""
        # before the reading: what is read in a newer session is not ours
        session_id = self._session.id
        mine: str | None = None
        for name in sorted((name for name in names if self._mark in name), key=order):
            stat = self._session.exists(join(self._path, name))
            if stat is None:
                continue
            if mine is None and stat.ephemeral_owner == session_id and session_id is not None:
                mine = name
            else:
                self._delete(name)
        return mine

    def _enlist(self) -> None:
        if self.node is not None:  # that one belonged to a session that is over, or was deleted
            self._mark = str(uuid.uuid4())
            self.node = None
        prefix = join(self._path, f"_c_{self._mark}-{_BASE}")
        self._session.create(prefix, self._id, ephemeral=True, sequential=True)

    def _delete(self, name: str) -> None:
        with suppress(NoNode):
            self._session.delete(join(self._path, name))

    def _warn_of_strangers(self, names: list[str]) -> None:
        strangers = {name for name in names if _BASE not in name} - self._warned
        self._warned |= strangers
        for name in strangers:
            why = "not a candidate; in front of all others it keeps everybody from leading path=%s"
            log.warning(why, join(self._path, name))
