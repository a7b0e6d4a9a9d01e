"""The consumers of one queue, as they know of each other, and what Java is told when one has died.

A consumer is an ephemeral child of ``<path>-meta/members``. Java consumers are not among them.

A Java consumer reacts to changes of the queue's children only, not to a lock that vanishes (F7). So
every queue object with a lock path watches the members: when one has died (who leaves cleanly takes
its record of claims away first), it waits a moment, looks whether items lie there that nobody has
locked, and *wakes Java*: creates and deletes a znode in one multi, which nobody ever sees, but
which fires every watch on the children. Several may do so; that does no harm.
"""

from __future__ import annotations

import logging
import random
import uuid
from collections.abc import Callable
from contextlib import suppress

from leaderq.clock import now_ms
from leaderq.errors import ConnectionLost, LeaderqError, NodeExists
from leaderq.queues.consuming.claims import Membership
from leaderq.queues.consuming.deaths import DeathRecords
from leaderq.queues.consuming.pending import Share
from leaderq.queues.wire.names import QueueKind, due_ms_of, is_item
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.reading import children_of
from leaderq.threads import Service
from leaderq.writing import SequencedWriter
from leaderq.zookeeper import Create, Delete, Session, SessionState, Subscription, WatchEvent
from leaderq.zookeeper.paths import join, name_of

log = logging.getLogger(__name__)

POKE = "poke"
_MOMENT_S = 0.2
_AGAIN_S = 1.0


class Members:
    """Makes this consumer a member, and knows how many there are. Used by the engine's thread; its
    watch comes on the session's.
    """

    def __init__(
        self, session: Session, paths: QueuePaths, name: str, notify: Callable[[], object]
    ) -> None:
        self._session = session
        self._paths = paths
        self._name = name
        self._notify = notify
        self._writer: SequencedWriter | None = None
        self._is_stale = True
        self._mark: tuple[int | None, str] | None = None
        self.share: Share | None = None
        self.deaths = DeathRecords(session, paths)

    def enter(self) -> Membership:
        """Stand among the consumers, and be able to claim. Raises what the session raises."""
        paths, session_id = self._paths, self._session.id
        if self._mark is None or self._mark[0] != session_id:
            # The same for all tries within one session: a lost answer must not leave a member that
            # nobody is.
            self._mark = (session_id, uuid.uuid4().hex)
        mark = self._mark[1]
        member = f"{paths.members}/{mark}"
        if paths.lock_path is not None:
            writer = SequencedWriter(
                self._session, member, ephemeral=True, data=self._name.encode()
            )
            writer.open()
            self._session.ensure_path(paths.lock_path)
            self.deaths.open(member)
        else:
            if self._writer is None:
                writer = SequencedWriter(self._session, f"{paths.tallies}/{mark}")
                writer.open()
                self._writer = writer
            writer = self._writer
            self._session.ensure_path(paths.members)
            with suppress(NodeExists):  # by a former try whose answer was lost
                self._session.create(member, self._name.encode(), ephemeral=True)
        self._is_stale = True
        return Membership(paths, writer, member, session_id)

    def is_standing(self, membership: Membership) -> bool:
        """Whether it still is a member, as far as is known: from the moment on when the end of its
        session is heard of, it is not.
        """
        is_over = membership.is_locking and membership.writer.is_over
        return membership.session_id == self._session.id and not is_over

    def refresh(self, membership: Membership) -> None:
        if not self._is_stale:
            return
        self._is_stale = False  # before reading: what comes meanwhile makes it stale again
        try:
            if membership.is_locking:
                self.deaths.listed()
            names = sorted(children_of(self._session, self._paths.members, self._changed))
            if membership.is_locking:
                self.deaths.refresh(names)
        except BaseException:
            self._is_stale = True
            raise
        own = name_of(membership.member)
        is_alone = own not in names or len(names) == 1
        self.share = None if is_alone else Share(names.index(own), len(names))

    def leave(self, membership: Membership, timeout_s: float) -> bool:
        """Stand no more; returns whether all that was to be written was."""
        self.deaths.close()  # before the member goes: so whoever sees it go knows that it left
        is_clean = membership.writer.close(timeout_s)
        if not membership.is_locking:
            try:
                self._session.delete(membership.member, timeout_s=1.0)
            except LeaderqError as exc:
                log.debug("member goes with its session member=%s error=%s", membership.member, exc)
        return is_clean

    def _changed(self, _event: WatchEvent) -> None:
        self._is_stale = True
        self._notify()


class ConsumerDeathWatcher:
    """One thread, asleep unless a member vanishes. For queues with a lock path only."""

    def __init__(self, session: Session, paths: QueuePaths, kind: QueueKind) -> None:
        self._session = session
        self._paths = paths
        self._kind = kind
        self._service = Service.repeating("leaderq-queue-deaths", self._step)
        self._members: set[str] = set()
        self._subscription: Subscription | None = None
        self.wake_ups = 0

    def start(self) -> None:
        self._service.start()

    def close(self) -> None:
        self._service.stop(0.0)
        if self._subscription is not None:
            self._subscription.close()
            self._subscription = None

    def _step(self) -> float | None:
        try:
            self._look()
        except ConnectionLost:
            return _AGAIN_S
        except LeaderqError as exc:
            log.warning("consumers cannot be watched queue=%s error=%s", self._paths.path, exc)
            return _AGAIN_S * 10
        return None

    def _look(self) -> None:
        if self._session.state is SessionState.CLOSED:
            self._service.stop(0.0)
            return
        if self._subscription is None:
            self._subscription = self._session.watch_node(self._paths.members, self._changed)
        members = set(children_of(self._session, self._paths.members))
        lost = (join(self._paths.claims, name) for name in self._members - members)
        has_died = any(self._session.exists(path) is not None for path in lost)
        if has_died and self._service.pause(_MOMENT_S + random.random() * _MOMENT_S):
            self._wake_java_if_idle()
        self._members = members  # last: what raises is tried again

    def _wake_java_if_idle(self) -> None:
        """Whoever is awake has taken what was freed by now; what still lies there needs somebody to
        be woken.
        """
        lock_path = self._paths.lock_path or ""
        there, held = self._session.exists(self._paths.path), self._session.exists(lock_path)
        if there is None or there.num_children <= (0 if held is None else held.num_children):
            return
        locked = set(children_of(self._session, lock_path))
        now = now_ms()
        free = (
            name
            for name in children_of(self._session, self._paths.path)
            if is_item(self._kind, name) and name not in locked
        )
        if any(self._kind is not QueueKind.DELAY or due_ms_of(name) <= now for name in free):
            poke = self._paths.item(POKE)
            self._session.multi([Create(poke), Delete(poke)])
            self.wake_ups += 1

    def _changed(self, _event: WatchEvent) -> None:
        self._service.wake()
