"""The consumers of one queue: each has an ephemeral child of one znode, and so knows of the others.

The servers are authoritative; this process knows what it read last, and a watch says when to read
again. On each failure: if the **answer to an entry is lost**, the next try in the same session
takes the same name, so that no member stays that nobody owns; if the **session is over**, the
member is gone, and the next entry makes another one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from leaderq.base import chance
from leaderq.errors import QueueClosed
from leaderq.threads import primitives
from leaderq.zookeeper import Session, Subscription, WatchEvent
from leaderq.zookeeper.paths import join, name_of
from leaderq.zookeeper.reading import children_of
from leaderq.zookeeper.writing import SequencedWriter

OTHERS_S = 0.02
"""For so long a consumer that was beaten to the last of something lets the others go first."""


@dataclass(frozen=True, eq=False)
class Membership:
    """One consumer of a queue, as long as the session with the id ``session_id`` lasts.

    ``member``: its ephemeral znode, which others see. If that znode is the guard of its ``writer``,
    nothing can be claimed or settled once the session is over. ``paths``: the znodes of its queue.
    """

    paths: Any
    writer: SequencedWriter
    member: str
    session_id: int | None

    @cached_property
    def is_locking(self) -> bool:
        """Whether the claims of this consumer end with its session."""
        return self.writer.is_ephemeral

    @cached_property
    def mark(self) -> str:
        """The name of the member's znode, by which its claims are known."""
        return name_of(self.member)


class ReadAfterNews(ABC):
    """Reads again what may have changed at the znodes ``watched``; with ``is_tree``, also below
    them. Any thread may use it; ``notify`` is called on the thread of watches. In one session, all
    watches of one path must have the same kind (Z21).
    """

    def __init__(
        self,
        session: Session,
        watched: Sequence[str],
        notify: Callable[[], object],
        *,
        is_tree: bool = False,
    ) -> None:
        self._session = session
        self._watched = watched
        self._watch = session.watch_tree if is_tree else session.watch_node
        self._notify = notify
        self._subscriptions: list[Subscription] = []
        self._reading = primitives.Lock()
        self.is_stale = True
        """Whether there may be news."""
        self.is_closed = False

    def refresh(self) -> bool:
        """Read, if there may be news; return whether there may have been. If another thread is
        reading, wait for it. Raises what the session raises.

        :raises QueueClosed: this object was closed.
        """
        with self._reading:
            if not self.is_stale:
                return False
            self.is_stale = False  # before reading: later news makes it stale again
            try:
                self._read()
            except BaseException:
                self.is_stale = True
                raise
            return True

    def close(self) -> None:
        self.is_closed = self.is_stale = True
        closed, self._subscriptions = self._subscriptions, []
        for one in closed:
            one.close()

    def _listen(self) -> None:
        """Set the watches, so that news from now on is heard; for :meth:`_read`."""
        if not self.is_closed:
            for path in self._watched[len(self._subscriptions) :]:
                self._subscriptions.append(self._watch(path, self._heard))
        if self.is_closed:
            self.close()
            raise QueueClosed(f"what is at {self._watched[0]} is not read any more")

    @abstractmethod
    def _read(self) -> None: ...

    def _heard(self, _event: WatchEvent) -> None:
        self.is_stale = True
        self._notify()


class Members(ReadAfterNews):
    """Makes this consumer a member; ``names`` has all members, as last read, sorted."""

    def __init__(
        self,
        session: Session,
        paths: Any,
        name: str,
        notify: Callable[[], object],
    ) -> None:
        super().__init__(session, (paths.members,), notify)
        self._paths = paths
        self._name = name.encode()
        self._mark: tuple[int | None, str] | None = None
        self.names: list[str] = []

    def enter(self) -> Membership:
        """Make this consumer a member, with a writer whose guard is the member's znode. Raises what
        the session raises.
        """
        member, session_id = self._own()
        writer = SequencedWriter(self._session, member, ephemeral=True, data=self._name)
        writer.open()
        self.is_stale = True
        return Membership(self._paths, writer, member, session_id)

    def _own(self) -> tuple[str, int | None]:
        session_id = self._session.id
        if self._mark is None or self._mark[0] != session_id:
            self._mark = (session_id, chance.uuid4().hex)
        return join(self._paths.members, self._mark[1]), session_id

    def is_standing(self, membership: Membership) -> bool:
        """Whether this consumer still is a member, as far as is known. It is none as soon as this
        process hears of the end of its session.
        """
        is_over = membership.is_locking and membership.writer.is_over
        return membership.session_id == self._session.id and not is_over

    def _read(self) -> None:
        self._listen()
        self.names = sorted(children_of(self._session, self._paths.members))
