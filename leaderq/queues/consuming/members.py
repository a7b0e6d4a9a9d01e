"""The consumers of one queue, as they know of each other: who is there, over what they died, and
what Java is told then.

A consumer is an ephemeral child of ``<path>-meta/members``. Java consumers are not among them.

A Java consumer reacts to changes of the queue's children only, not to a lock that vanishes (F7). So
every queue object with a lock path watches the members: when one has died (who leaves cleanly takes
its record of claims away first), it waits a moment, looks whether items lie there that nobody has
locked, and *wakes Java*: creates and deletes a znode in one multi, which nobody ever sees, but
which fires every watch on the children. Several may do so; that does no harm.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

from leaderq.base import chance, clock
from leaderq.engine.members import Members, Membership, ReadAfterNews
from leaderq.errors import (
    ConfigurationError,
    ConnectionLost,
    LeaderqError,
    NodeExists,
    NoNode,
)
from leaderq.queues.consuming.pending import Share
from leaderq.queues.wire.names import QueueKind, due_ms_of, is_item
from leaderq.queues.wire.znodes import QueuePaths, wants_pause
from leaderq.threads import Service
from leaderq.zookeeper import Create, Delete, Operation, Session, SessionState, SetData
from leaderq.zookeeper.paths import join, name_of
from leaderq.zookeeper.reading import children_of, existing
from leaderq.zookeeper.writing import SequencedWriter

log = logging.getLogger(__name__)

POKE = "poke"
_MOMENT_S = 0.2
_AGAIN_S = 1.0


class DeathRecords:
    """Counts the consumers that died over an item, for queues with a lock path. Used by the
    engine's thread; what it returns is as of the last :meth:`refresh`.

    Each consumer has a persistent record, ``<path>-meta/claims/<member>``, which every claim
    overwrites, in its own multi, with the names it holds then. A record without a member is a
    death: over the name in the record or, if there are several names, over an unknown one of them.
    An item that was held at two deaths is a *suspect*: it is claimed alone until it is settled, so
    that the next death tells; then the deaths before it count as well.

    What happens on each failure: **a record cannot be read or deleted**: it is looked at again when
    a member comes or goes; **a record is taken away by hand**: those deaths are not counted; **a
    session ends and its process lives on**: it takes its record away as soon as it is connected
    again, and no death counts for who claims later.
    """

    def __init__(self, session: Session, paths: QueuePaths) -> None:
        self._session = session
        self._paths = paths
        self._own: str | None = None
        self._left: dict[str, tuple[bool, set[str]]] = {}
        """By the record of a dead consumer: whether it held one item alone, and those of its items
        that are not dealt with.
        """

    def open(self, member: str) -> None:
        self._own = path = join(self._paths.claims, name_of(member))
        self._session.ensure_path(self._paths.claims)
        with suppress(NodeExists):  # by an earlier try whose answer was lost
            self._session.create(path)

    def close(self) -> None:
        """Delete the record: this consumer has not died over the items that it still holds."""
        own, self._own = self._own, None
        if own is not None:
            self._delete(own)

    def note(self, names: Collection[str]) -> tuple[Operation, ...]:
        """The part of a claim's multi that records the names this consumer holds with it."""
        if self._own is None:
            return ()
        return (SetData(self._own, json.dumps(sorted(names)).encode()),)

    def refresh(self, records: Sequence[str], members: Collection[str]) -> None:
        """Read the records of consumers that have died: those of ``records`` that are not among
        ``members``, which must be listed later. Raises what the session raises.
        """
        dead = [name for name in records if name not in members]
        new = [name for name in dead if name not in self._left]
        self._left = {name: left for name, left in self._left.items() if name in dead}
        if not new:
            return
        found = existing(self._session, [join(self._paths.claims, name) for name in new])
        for path, (data, _) in found.items():
            held = self._still_there(_names(data))
            log.warning("consumer died queue=%s items=%d", self._paths.path, len(held))
            self._left[name_of(path)] = len(held) == 1, held
        self.settled(())

    @property
    def has_suspects(self) -> bool:
        """Whether there are items over which consumers may have died."""
        return bool(self._left)

    def is_suspect(self, name: str) -> bool:
        """Whether two dead consumers held this item, and what killed them is not known."""
        told = {one for is_alone, held in self._left.values() if is_alone for one in held}
        return sum(name in held and not held & told for _, held in self._left.values()) > 1

    def deaths_of(self, name: str) -> int:
        """How many consumers have certainly died over this item."""
        are_alone = [is_alone for is_alone, held in self._left.values() if name in held]
        return len(are_alone) if any(are_alone) else 0

    def settled(self, names: Iterable[str]) -> None:
        """Note that these items are dealt with, so that they are not suspects any more."""
        settled = set(names)
        for record, (_, held) in list(self._left.items()):
            held -= settled
            if not held:
                del self._left[record]
                self._delete(join(self._paths.claims, record))

    def _still_there(self, names: set[str]) -> set[str]:
        ordered = sorted(names)
        try:
            stats = [self._session.exists_async(self._paths.item(name)) for name in ordered]
        except ConfigurationError:  # they are no names, so no consumer has written them
            return set()
        return {
            name for name, stat in zip(ordered, stats, strict=True) if stat.result(10.0) is not None
        }

    def _delete(self, path: str) -> None:
        try:
            self._session.delete(path, timeout_s=1.0)
        except NoNode:
            return
        except LeaderqError as exc:
            level = logging.DEBUG if isinstance(exc, ConnectionLost) else logging.WARNING
            log.log(level, "claim record stays path=%s error=%s", path, exc)


def _names(data: bytes) -> set[str]:
    try:
        said = json.loads(data or b"[]")
    except (ValueError, RecursionError):
        return set()
    return {name for name in said if isinstance(name, str)} if isinstance(said, list) else set()


class QueueMembers(Members):
    """The members of a queue, what each takes first, and over what others have died."""

    def __init__(
        self, session: Session, paths: QueuePaths, name: str, notify: Callable[[], object]
    ) -> None:
        super().__init__(session, paths, name, notify)
        self._writer: SequencedWriter | None = None
        self.share: Share | None = None
        self.deaths = DeathRecords(session, paths)

    def enter(self) -> Membership:
        """Make this consumer a member. Without a lock path, its writer outlives the session."""
        paths: QueuePaths = self._paths
        if paths.lock_path is not None:
            membership = super().enter()
            self._session.ensure_path(paths.lock_path)
            self.deaths.open(membership.member)
            return membership
        member, session_id = self._own()
        if self._writer is None:
            writer = SequencedWriter(self._session, f"{paths.tallies}/{name_of(member)}")
            writer.open()
            self._writer = writer
        self._session.ensure_path(paths.members)
        with suppress(NodeExists):  # by an earlier try whose answer was lost
            self._session.create(member, self._name, ephemeral=True)
        self.is_stale = True
        return Membership(paths, self._writer, member, session_id)

    def _read(self) -> None:
        is_locking = self._paths.lock_path is not None
        records = children_of(self._session, self._paths.claims) if is_locking else []
        super()._read()
        names = self.names
        self.deaths.refresh(records, names)
        own = name_of(self._own()[0])
        is_alone = own not in names or len(names) == 1
        self.share = None if is_alone else Share(names.index(own), len(names))

    def leave(self, membership: Membership, timeout_s: float) -> bool:
        """Leave the members; returns whether all pending writes were written."""
        self.deaths.close()  # before the member goes, so that whoever sees that knows that it left
        is_clean = membership.writer.close(timeout_s)
        if not membership.is_locking:
            try:
                self._session.delete(membership.member, timeout_s=1.0)
            except LeaderqError as exc:
                log.debug("member goes with its session member=%s error=%s", membership.member, exc)
        return is_clean


class PauseSwitch(ReadAfterNews):
    """Whether consumers are paused: by the user of this object, or by an operator in ZooKeeper for
    all of leaderq's consumers, including later ones. Java's consumers do not know of a pause.
    """

    def __init__(self, session: Session, paths: QueuePaths, notify: Callable[[], object]) -> None:
        super().__init__(session, (paths.control,), notify)
        self._paths = paths
        self._by_operator = False
        self.by_user = False

    @property
    def is_paused(self) -> bool:
        return self.by_user or self._by_operator

    def set(self, paused: bool) -> None:
        self.by_user = paused
        self._notify()

    def _read(self) -> None:
        self._listen()
        try:
            paused = wants_pause(self._session.get(self._paths.control)[0])
        except NoNode:
            paused = False
        if paused is not self._by_operator:
            done = "paused" if paused else "resumed"
            log.info("operator's pause noticed queue=%s state=%s", self._paths.path, done)
            self._by_operator = paused
            self._notify()


class ConsumerDeathWatcher(ReadAfterNews):
    """Wakes Java's consumers after a member has died; needs a lock path."""

    def __init__(self, session: Session, paths: QueuePaths, kind: QueueKind) -> None:
        self._service = Service.repeating("leaderq-queue-deaths", self._step)
        super().__init__(session, (paths.members,), self._service.wake)
        self._paths = paths
        self._kind = kind
        self._members: set[str] = set()

    def start(self) -> None:
        self._service.start()

    def close(self) -> None:
        self._service.stop(0.0)
        super().close()

    def _step(self) -> float | None:
        if self._session.state is SessionState.CLOSED:
            self._service.stop(0.0)
            return None
        try:
            self.refresh()
        except ConnectionLost:
            return _AGAIN_S
        except LeaderqError as exc:
            log.warning("consumers cannot be watched queue=%s error=%s", self._paths.path, exc)
            return _AGAIN_S * 10
        return None

    def _read(self) -> None:
        self._listen()
        members = set(children_of(self._session, self._paths.members))
        lost = (join(self._paths.claims, name) for name in self._members - members)
        has_died = any(self._session.exists(path) is not None for path in lost)
        if has_died and self._service.pause(_MOMENT_S + chance.random() * _MOMENT_S):
            self._wake_java_if_idle()
        self._members = members  # last: what raises is tried again

    def _wake_java_if_idle(self) -> None:
        """Only if unlocked items are left: consumers that were awake have taken others by now."""
        locked = set(children_of(self._session, self._paths.lock_path or ""))
        now = clock.now_ms()
        free = (
            name
            for name in children_of(self._session, self._paths.path)
            if is_item(self._kind, name) and name not in locked
        )
        if any(self._kind is not QueueKind.DELAY or due_ms_of(name) <= now for name in free):
            poke = self._paths.item(POKE)
            self._session.multi([Create(poke), Delete(poke)])
