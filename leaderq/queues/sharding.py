"""Curator's ``QueueSharder``: one queue spread over several znodes, *shards*, as many as its depth
asks for.

Who is authoritative: the children of the queue path are the shards, for Java and Python processes
alike. Who may add one is decided by a latch that they share.
Each process has a queue object for every shard, and looks every ``threshold_check_s``, and at once
when shards come or go, at how full they are (:mod:`leaderq.queues.shard_plan`).

On each failure:

* **several start at once where there is no shard**: the latch's leader makes the first; if there is
  none within ``FIRST_SHARD_S`` (or one and a half session time-outs), one of the others makes it. A
  Java process that starts at that moment does not ask; two shards are the result, which do no harm;
* **connection lost, session expired**: shards known are used on; nothing is added or removed
  meanwhile, and all is looked at again afterwards;
* **the allocator, or a queue's start, fails**: in :meth:`QueueSharder.start` that is raised; later
  it is logged and tried again;
* **a shard's znode is deleted by somebody**: its queue is closed and forgotten.

Znodes, all persistent::

    <queue path>/queue-<uuid4>              a shard: a queue of its own (Curator's format)
    <queue path>-meta/retired/<shard name>  nothing more shall be put into that shard

Every write of a leader is fenced by its place in the latch. The first shard is also guarded by the
version of the root's data, which Curator never writes: of several processes that find no shard one
makes it, even if none of them can lead.

Rotation. ZooKeeper numbers a znode's children with 31 bits, and never begins again while the znode
lives. A shard that comes near the end (``rotate_at``), or that somebody retires with
:meth:`QueueSharder.retire`, is marked: nothing more is put into it, and the leader removes it when
it was empty for ``retire_grace_s``. Java processes do not heed the mark: they go on putting into
such a shard, and a put right after the removal fails. So retire shards by hand only when no Java
process uses the sharder. The dead letters of a shard that was removed, below ``<queue path>-side``,
stay.
"""

from __future__ import annotations

import logging
import random
import threading
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Generic, Protocol, TypeVar

from leaderq.clock import now_s
from leaderq.errors import (
    BadVersion,
    ConfigurationError,
    ConnectionLost,
    LeaderqError,
    NoNode,
    NotEmpty,
    QueueClosed,
    SessionExpired,
    ZooKeeperError,
)
from leaderq.queues.shard_plan import (
    QueueSharderPolicies,
    ShardPlan,
    ShardState,
    plan_shards,
)
from leaderq.queues.wire.names import next_number
from leaderq.queues.wire.znodes import is_shard, new_shard_name
from leaderq.threads import Service
from leaderq.zookeeper import (
    AnyClient,
    Check,
    Create,
    Delete,
    GetData,
    Operation,
    Session,
    SessionState,
    SetData,
    Stat,
    WatchEvent,
    as_session,
)
from leaderq.zookeeper.paths import is_at_or_below, join, name_of, validated_path

log = logging.getLogger(__name__)

FIRST_SHARD_S = 10.0
"""Seconds that a process waits for the leader to make the first shard, at least."""
_TRY_AGAIN_S = 1.0
_BASE = "latch-"


class ShardQueue(Protocol):
    """Any of the recipes, or a queue of the user's own."""

    def start(self) -> object:
        """Begin. Called once by the sharder."""

    def close(self) -> object:
        """Let go, in bounded time. Called once by the sharder."""


Q = TypeVar("Q", bound=ShardQueue)
Q_co = TypeVar("Q_co", bound=ShardQueue, covariant=True)


class QueueAllocator(Protocol[Q_co]):
    """Any callable that makes the queue of a shard, *not* started: ``lambda client, path:
    DistributedQueue(client, path, ...)``.

    Each must be given a lock path of its own, if any: items of two shards may have one name.
    ``f"{path}-locks"`` will not do, since nothing but shards may be below the sharder's path;
    ``path.replace("/jobs/", "/job-locks/")`` will.
    """

    def __call__(self, client: Session, path: str, /) -> Q_co:
        """The queue of the shard at ``path``."""


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
    """A place in the line that Curator's ``LeaderLatch`` stands in, for Java and Python alike. Not
    thread-safe. ``notify`` is called on a ZooKeeper thread when the line has changed.

    Who is authoritative: the children of the latch's path, ``_c_<uuid4>-latch-<number>``,
    ephemeral; whose text after the last ``latch-`` comes first leads. As in Java no child is left
    out, so whatever else is put there may keep everybody from leading: that is logged.

    A znode is ours if it carries our mark *and* belongs to our present session. On each failure:
    **answer to its creation lost**: the mark finds it again, surplus ones are deleted; **session
    expired**: a new znode under a new mark; **no connection**: :meth:`look` raises, and nobody must
    think that they lead. Leading is known of the past only: whatever a leader writes is fenced by
    ``Check(latch.node)`` in the same multi.
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
            why = "not a candidate, in front of all others it keeps everybody from leading path=%s"
            log.warning(why, join(self._path, name))


class ShardRegistry:
    """What the znodes say of the shards, and what the leader writes there. Not thread-safe but for
    :meth:`mark`. ``notify`` is called on a ZooKeeper thread when something has changed.
    """

    def __init__(self, session: Session, root: str, notify: Callable[[WatchEvent], None]) -> None:
        self._session = session
        self.root = root
        self._marks = f"{root}-meta/retired"
        self._notify = notify
        self._warned: set[str] = set()

    def shards(self) -> list[str]:
        """The names of the shards; foreign children are left out, and told of once."""
        names = children_made(self._session, self.root, self._notify)
        strangers = {name for name in names if not is_shard(name)} - self._warned
        self._warned |= strangers
        for name in strangers:
            why = "not a shard, but a Java sharder puts items into it queue=%s child=%s"
            log.warning(why, self.root, name)
        return sorted(filter(is_shard, names))

    def marked(self) -> set[str]:
        return set(children_made(self._session, self._marks, self._notify))

    def look_at(self, names: Sequence[str]) -> dict[str, Stat]:
        """Those of these that are there, in one request however many they are."""
        answers = self._session.multi_read([GetData(join(self.root, name)) for name in names])
        seen: dict[str, Stat] = {}
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, tuple):
                seen[name] = answer[1]
            elif isinstance(answer, LeaderqError) and not isinstance(answer, NoNode):
                raise answer
        return seen

    def make_first(self, fence: str | None) -> None:
        """Make a shard if there is none, as leader (``fence``: its place) or in its stead."""
        # before the list: what is made later changes it
        version = self._session.get(self.root)[1].version
        if not any(map(is_shard, self._session.children(self.root))):
            fences = [] if fence is None else [Check(fence)]
            self.make([*fences, SetData(self.root, b"", version)])

    def make(self, fences: Sequence[Operation]) -> None:
        path = join(self.root, new_shard_name())
        try:
            self._session.multi([*fences, Create(path)])
            log.info("shard made shard=%s", path)
        except (BadVersion, NoNode) as exc:  # somebody was quicker, or leads instead
            log.debug("shard not made shard=%s error=%s", path, exc)

    def mark(self, name: str) -> None:
        """Retire a shard. From any thread."""
        self._session.ensure_path(join(self._marks, name))

    def remove(self, name: str, fence: str) -> None:
        path, mark = join(self.root, name), join(self._marks, name)
        try:
            self._session.multi([Check(fence), Delete(path), Delete(mark)])
            log.info("retired and empty shard removed shard=%s", path)
        except NotEmpty:  # by a process that does not hear of it
            log.info("retired shard is put into again shard=%s", path)
        except NoNode as exc:
            log.debug("shard not removed shard=%s error=%s", path, exc)

    def forget(self, name: str) -> None:
        """Take the mark of a shard away that is there no more."""
        if self._session.exists(join(self.root, name)) is None:
            with suppress(NoNode):
                self._session.delete(join(self._marks, name))


class QueueSharder(Generic[Q]):
    """A family of queues that grows with what is in it; put into the one that :meth:`get_queue`
    returns, each time again.

    *Guarantees:* every shard there is, is consumed by every started sharder (if the allocator's
    queues consume). Shards are added one at a time, by one process at a time. A shard is removed
    only while it is empty. *Not guaranteed:* order between shards; that a shard holds no more than
    ``new_queue_threshold``: that is looked at every ``threshold_check_s`` seconds, and not at all
    once there are ``max_queues``.
    """

    def __init__(
        self,
        client: AnyClient,
        allocator: QueueAllocator[Q],
        queue_path: str,
        leader_path: str,
        policies: QueueSharderPolicies | None = None,
        *,
        id: str = "",
    ) -> None:
        self.queue_path, self.leader_path = validated_path(queue_path), validated_path(leader_path)
        both = f"leader_path={leader_path!r} and queue_path={queue_path!r}"
        ConfigurationError.unless(
            (
                not is_at_or_below(leader_path, queue_path)
                and not is_at_or_below(queue_path, leader_path),
                f"{both}: none may be in the other",
            ),
            (queue_path != "/", "a sharder needs a queue path of its own; '/' is no place for one"),
        )
        self._session = as_session(client)
        self._is_lent = self._session is client
        self._allocator = allocator
        self._policies = policies or QueueSharderPolicies()
        self._service = Service("leaderq-sharder", self._run)
        self._latch = Latch(self._session, leader_path, self._wake, id=id)
        self._registry = ShardRegistry(self._session, queue_path, self._wake)
        self._lock = threading.Lock()
        self._queues: dict[str, Q] = {}
        self._plan = ShardPlan()
        self._empty_since: dict[str, float] = {}
        self._told_at_most = False
        self._is_leader = False
        self._is_closed = False

    def __enter__(self) -> QueueSharder[Q]:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"QueueSharder({self.queue_path!r}, {len(self._queues)} shards)"

    def start(self, timeout_s: float = 60.0) -> None:
        """Take up the shards there are, or see to it that there is one. Does nothing if that was
        done.

        :raises QueueClosed: it was closed; make a new one.
        :raises ConnectionLost: there was no answer, or no shard, within ``timeout_s``; it can be
            tried again. Whatever the allocator raises.
        """
        if self._service.is_running and not self._is_closed:
            return
        now = now_s()
        deadline = now + timeout_s
        own_at = now + min(timeout_s, max(FIRST_SHARD_S, 1.5 * self._session.timeout_s))
        self._session.add_listener(self._wake)
        try:
            self._begin(deadline, own_at)
        except BaseException:  # who does not run must not stand in front of those who do
            self._latch.leave(_TRY_AGAIN_S)
            raise
        self._service.start()

    def close(self, timeout_s: float = 5.0) -> None:
        """Leave the latch, and close all queues, each in its own time. May be called again."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._session.remove_listener(self._wake)
        self._service.stop(timeout_s)
        if self._session.state is SessionState.CONNECTED:
            self._latch.leave(timeout_s)
        with self._lock:
            queues, self._queues = self._queues, {}
        for name, queue in queues.items():
            self._close(name, queue)
        if not self._is_lent:
            self._session.close()

    def get_queue(self) -> Q:
        """The queue of a shard to put into, by chance one of those that are not full. Ask again for
        the next put: it may be full then, or retired and removed, so that the put raises
        ``QueueClosed`` and another must be asked for.

        :raises QueueClosed: not started, or closed.
        """
        with self._lock:
            chosen = [name for name in self._plan.choice if name in self._queues]
            if self._is_closed or not self._queues:
                was = "closed" if self._is_closed else "not started"
                raise QueueClosed(f"the sharder of {self.queue_path} was {was}")
            return self._queues[random.choice(chosen or list(self._queues))]

    @property
    def shard_count(self) -> int:
        return len(self._queues)

    @property
    def queue_paths(self) -> list[str]:
        with self._lock:
            return [join(self.queue_path, name) for name in self._queues]

    @property
    def is_leader(self) -> bool:
        """Whether this process was the one that may add and remove shards, when it last looked."""
        return self._is_leader

    def retire(self, path: str) -> None:
        """Have nothing more put into a shard, and have it removed when it is empty; see the module
        on Java.

        :raises ConfigurationError: it is not a shard of this sharder.
        """
        if path not in self.queue_paths:
            known = ", ".join(self.queue_paths)
            raise ConfigurationError(f"{path!r} is not a shard; there are: {known}")
        self._registry.mark(name_of(path))

    def _begin(self, deadline: float, own_at: float) -> None:
        while True:
            if self._is_closed:
                raise QueueClosed(f"the sharder of {self.queue_path} was closed; make a new one")
            self._service.wait(0)
            try:
                self._look()
                if not self._queues and now_s() >= own_at:
                    log.warning("first shard made in place of the leader queue=%s", self.queue_path)
                    self._registry.make_first(None)
                    self._look()
            except (ConnectionLost, SessionExpired) as exc:
                log.debug("sharder cannot start yet queue=%s error=%s", self.queue_path, exc)
            if self._queues:
                return
            if now_s() >= deadline:
                where = f"there is no shard in {self.queue_path}"
                raise ConnectionLost(f"{where}, and none could be made in the time given")
            self._service.wait(max(0.0, min(_TRY_AGAIN_S, deadline - now_s())))

    def _run(self, service: Service) -> None:
        is_known = True
        while True:
            service.wait(self._rest_s(is_known))
            service.wait(0)
            if self._is_closed or self._session.state is SessionState.CLOSED:
                return
            is_known = False
            try:
                self._look()
                is_known = True
            except LeaderqError as exc:
                is_usual = isinstance(exc, ConnectionLost | SessionExpired)
                level = logging.DEBUG if is_usual else logging.ERROR
                log.log(level, "shards cannot be checked queue=%s", self.queue_path, exc_info=True)

    def _rest_s(self, is_known: bool) -> float:
        waits_s = [self._policies.threshold_check_s]
        if not is_known:
            waits_s.append(_TRY_AGAIN_S)
        if self._empty_since:
            waits_s.append(max(_TRY_AGAIN_S, self._policies.retire_grace_s))
        return min(waits_s)

    def _look(self) -> None:
        self._is_leader = False
        self._is_leader = self._latch.look()
        names = self._registry.shards()
        self._adopt_all(names)
        with self._lock:
            gone = {name: self._queues.pop(name) for name in {*self._queues}.difference(names)}
        for name, queue in gone.items():
            self._close(name, queue)
        plan = self._make_plan(names)
        with self._lock:
            self._plan = plan
        if self._is_leader and self._latch.node is not None:
            self._lead(plan, self._latch.node)

    def _make_plan(self, names: list[str]) -> ShardPlan:
        marked = self._registry.marked()
        seen = self._registry.look_at(names)
        now = now_s()
        self._empty_since = {
            name: self._empty_since.get(name, now)
            for name in seen
            if name in marked and not seen[name].num_children
        }
        shards = [
            ShardState(
                name,
                items=stat.num_children,
                next_sequence=next_number(stat.cversion, stat.num_children),
                is_marked=name in marked,
                empty_for_s=now - self._empty_since.get(name, now),
                was_full=name in self._plan.full,
            )
            for name, stat in seen.items()
        ]
        if self._is_leader:
            for name in marked.difference(names):
                self._registry.forget(name)
        return plan_shards(shards, self._policies)

    def _lead(self, plan: ShardPlan, fence: str) -> None:
        for name in plan.to_mark:
            log.warning("shard near its last number is retired shard=%s", name)
            self._registry.mark(name)
        for name in plan.to_remove:
            self._registry.remove(name, fence)
        if plan.is_at_most and not self._told_at_most:
            log.warning("all shards are full, at max_queues queue=%s", self.queue_path)
        self._told_at_most = plan.is_at_most
        if not plan.needs_one_more:
            return
        if self._queues:
            self._registry.make([Check(fence)])
        else:
            self._registry.make_first(fence)
        self._adopt_all(self._registry.shards())

    def _adopt_all(self, names: Sequence[str]) -> None:
        for name in names:
            if name in self._queues or self._is_closed:
                continue
            try:
                self._adopt(name)
            except ZooKeeperError:
                raise
            except Exception:
                if not self._service.is_running:
                    raise
                log.exception("shard cannot be used yet queue=%s shard=%s", self.queue_path, name)

    def _adopt(self, name: str) -> None:
        queue = self._allocator(self._session, join(self.queue_path, name))
        try:
            queue.start()
        except BaseException:
            self._close(name, queue)
            raise
        with self._lock:
            is_late = self._is_closed
            if not is_late:
                self._queues[name] = queue
                self._plan = replace(self._plan, fit=(*self._plan.fit, name))  # put into at once
        if is_late:
            self._close(name, queue)

    def _close(self, name: str, queue: Q) -> None:
        try:
            queue.close()
        except Exception:
            log.exception("shard not closed queue=%s shard=%s", self.queue_path, name)

    def _wake(self, _news: object) -> None:
        """On the session's thread."""
        self._service.wake()
