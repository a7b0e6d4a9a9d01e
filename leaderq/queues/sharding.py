"""Curator's ``QueueSharder``: one queue spread over several znodes, *shards*, as many as its depth
asks for.

The children of the queue path are the shards, for Java and Python processes alike. The leader of a
latch that all share adds them. Each process has a queue object for every shard, and
checks their depths (:func:`plan_shards`) every ``threshold_check_s``, and when shards come or go.

On each failure:

* **several start at once where there is no shard**: one of them makes the first, whoever leads, as
  in Java. If a Java process starts at that moment, there may be two, which does no harm;
* **connection lost, session expired**: known shards are still used, none is added;
* **the allocator, or a queue's start, fails**: :meth:`QueueSharder.start` raises; later it is
  logged and tried again;
* **a shard's znode is deleted by somebody**: its queue is closed and forgotten.

A shard is a persistent znode ``<queue path>/queue-<uuid4>``, a queue of its own (Curator's format).
The leader's writes are fenced by its place in the latch. Whoever makes a shard also writes the
root's data at its version, so of several processes that find no shard only one makes it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeVar

from leaderq.base import chance
from leaderq.base.arguments import (
    above_0,
    at_least,
    in_seconds,
    instance,
    method_problem,
    plain_function,
    require,
    unless,
    wanted,
)
from leaderq.errors import (
    BadVersion,
    ConnectionLost,
    FromOutside,
    LeaderqError,
    NoNode,
    QueueClosed,
    SessionClosed,
    SessionExpired,
)
from leaderq.queues.wire.names import next_number
from leaderq.queues.wire.znodes import is_shard, new_shard_name
from leaderq.threads import Service, primitives
from leaderq.zookeeper import (
    AnyClient,
    Create,
    Session,
    SessionState,
    SetData,
    WatchEvent,
    as_session,
)
from leaderq.zookeeper.paths import is_at_or_below, join, name_of, validated_path
from leaderq.zookeeper.reading import existing
from leaderq.zookeeper.retrying import retry_until_connected
from leaderq.zookeeper.seat import Seat, SeatLost

log = logging.getLogger(__name__)

RETIRED_FROM = 2_000_000_000
"""A shard that has numbered so many items is retired: the counter ends at 2^31 - 1, and cannot be
set back while the shard lives.
"""
_TRY_AGAIN_S = 1.0
_BASE = "latch-"


@dataclass(frozen=True, slots=True)
class QueueSharderPolicies:
    """As in Curator, and with its defaults.

    ``new_queue_threshold``: with so many items a shard is full; with half as many it is fit for
    more again. ``threshold_check_s``: seconds between two looks at the numbers. ``max_queues``: no
    more shards than this are made; retired shards are not counted.
    """

    new_queue_threshold: int = 10_000
    threshold_check_s: float = 30.0
    max_queues: int = 10

    def __post_init__(self) -> None:
        require(
            at_least("new_queue_threshold", self.new_queue_threshold, 1, "items"),
            above_0("threshold_check_s", self.threshold_check_s, "seconds"),
            at_least("max_queues", self.max_queues, 1),
        )


@dataclass(frozen=True, slots=True)
class ShardState:
    """What was seen of one shard at one look."""

    name: str
    items: int
    next_sequence: int = 0
    was_full: bool = False


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """The names of the shards in each state, and whether the leader has to make one."""

    fit: tuple[str, ...] = ()
    full: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    needs_one_more: bool = False

    @property
    def choice(self) -> tuple[str, ...]:
        return self.fit or self.full or self.retired


def plan_shards(shards: Iterable[ShardState], policies: QueueSharderPolicies) -> ShardPlan:
    """What each shard is, and whether one more is needed (pure).

    * *fit*, put into: because it is new, or came down to half of ``new_queue_threshold``;
    * *full*, put into only if none is fit: since it reached ``new_queue_threshold``;
    * *retired*, put into only if there is no other: since it has numbered ``RETIRED_FROM`` items.

    Every process decides for itself, with the same result; only the leader of the latch acts on it.
    """
    fit, full, retired = list[str](), list[str](), list[str]()
    threshold = policies.new_queue_threshold
    for shard in shards:
        if shard.next_sequence >= RETIRED_FROM:
            retired.append(shard.name)
        elif shard.items >= threshold or (shard.was_full and shard.items > threshold // 2):
            full.append(shard.name)
        else:
            fit.append(shard.name)
    there_may_be_more = len(fit) + len(full) < policies.max_queues
    return ShardPlan(tuple(fit), tuple(full), tuple(retired), not fit and there_may_be_more)


class ShardQueue(Protocol):
    """Any of the recipes, or a queue of the user's own; started once, and closed once."""

    def start(self) -> object: ...

    def close(self) -> object: ...


Q = TypeVar("Q", bound=ShardQueue)
QueueAllocator = Callable[[Session, str], Q]
"""Makes the queue of the shard at a path, *not* started: ``lambda client, path:
DistributedQueue(client, path, ...)``.
"""


def order(name: str) -> str:
    """The sort key of a child's turn: Curator's ``LockInternals`` compares just this, as text."""
    return name.rpartition(_BASE)[2]


class Latch:
    """A place in the line that Curator's ``LeaderLatch`` stands in, for Java and Python alike. Not
    thread-safe. ``notify`` is called on a ZooKeeper thread when the line has changed.

    Who is authoritative: the children of the latch's path, ``_c_<uuid4>-latch-<number>``,
    ephemeral; whose text after the last ``latch-`` comes first leads. As in Java no child is left
    out, so whatever else is put there may keep everybody from leading: that is logged.

    On each failure: **answer to the creation of our znode lost**: the next look deletes what was
    made; **session expired**: a new znode; **no connection**: :meth:`look` raises. Leading is known
    of the past only: whatever a leader writes is fenced by its seat.
    """

    def __init__(
        self, session: Session, path: str, notify: Callable[[WatchEvent], None], *, id: str = ""
    ) -> None:
        self._session = session
        self._path = path
        self._notify = notify
        self._id = id.encode()
        self._mark = str(chance.uuid4())
        self._warned: set[str] = set()
        self.seat: Seat | None = None
        """Our znode, as last seen."""

    def look(self) -> bool:
        """Stand in the line; returns whether we are first.

        :raises ConnectionLost: it could not be found out whether we are first.
        """
        names = children_made(self._session, self._path, self._notify)
        seat = self.seat
        if seat is None or seat.is_over or name_of(seat.path) not in names:
            session_id = self._session.id or 0  # before: what a newer session makes is not trusted
            prefix = join(self._path, f"_c_{self._mark}-{_BASE}")
            made = self._session.create(prefix, self._id, ephemeral=True, sequential=True)
            self.seat = seat = Seat(self._session, made, session_id)
            names = children_made(self._session, self._path, self._notify)
        own = name_of(seat.path)
        self._delete(name for name in names if name != own)
        strangers = {name for name in names if _BASE not in name} - self._warned
        self._warned |= strangers
        for name in strangers:
            why = "not a candidate, but first in the line, nobody can lead path=%s"
            log.warning(why, join(self._path, name))
        return min(names, key=order, default=None) == own

    def _delete(self, names: Iterable[str]) -> None:
        """Delete those of these that we have made."""
        for name in names:
            if self._mark in name:
                with suppress(NoNode):
                    self._session.delete(join(self._path, name))

    def leave(self, timeout_s: float) -> None:
        """Release the place; wait at most ``timeout_s``. If there is no connection, it is released
        when there is one again, or goes with the session.
        """

        def release() -> None:
            self._delete(self._session.children(self._path))

        def run(_service: Service) -> None:
            try:
                retry_until_connected(release, self._session.timeout_s)
            except LeaderqError as exc:
                log.debug("place in the line not released path=%s error=%s", self._path, exc)

        leaving = Service("leaderq-sharder-leave", run)
        leaving.start()
        leaving.stop(timeout_s)


def children_made(session: Session, path: str, notify: Callable[[WatchEvent], None]) -> list[str]:
    """The children of ``path``, which is made if need be; ``notify`` is called once they change."""
    try:
        return session.children(path, watch=notify)
    except NoNode:
        session.ensure_path(path)
        return session.children(path, watch=notify)


class QueueSharder(Generic[Q]):
    """A family of queues that grows with what is in it; for each put, ask :meth:`get_queue` for a
    queue again.

    ``allocator`` makes the queue of a shard, *not* started. Each must be given a lock path of its
    own, if any: items of two shards may have one name. ``f"{path}-locks"`` will not do, because
    nothing but shards may be below the sharder's path; ``path.replace("/jobs/", "/job-locks/")``
    will. ``leader_path``: the latch. ``id``: what is written into our place in it.

    *Guarantees:* every started sharder consumes every shard (if the allocator's queues consume).
    Shards are added one at a time, by one process at a time, and never removed. *Not guaranteed:*
    order between shards; that a shard holds no more than ``new_queue_threshold``: that is looked at
    every ``threshold_check_s`` seconds, and not at all once there are ``max_queues``.
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
        paths = (leader_path, queue_path)
        is_apart = not (is_at_or_below(*paths) or is_at_or_below(*paths[::-1]))
        both = f"leader_path={leader_path!r}, queue_path={queue_path!r}"
        require(
            plain_function("allocator", allocator),
            instance("policies", policies, QueueSharderPolicies | None),
            instance("id", id, str),
            unless(is_apart, f"{both}: neither may be in the other"),
            wanted("queue_path", queue_path, queue_path != "/", "the sharder a path of its own"),
        )
        self._session = as_session(client)
        self._is_lent = self._session is client
        self._allocator = allocator
        self._policies = policies or QueueSharderPolicies()
        self._service = Service("leaderq-sharder", self._run)
        self._latch = Latch(self._session, leader_path, self._wake, id=id)
        self._lock = primitives.Lock()
        self._queues: dict[str, Q] = {}
        self._plan = ShardPlan()
        self._strangers: set[str] = set()
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
        """Take up the shards that exist; if there is none, make one. Does nothing if this was
        started before.

        :raises QueueClosed: it was closed; make a new one.
        :raises ConnectionLost: there was no answer, or no shard, within ``timeout_s``; call it
            again. Whatever the allocator raises.
        """
        within_s = in_seconds("timeout_s", timeout_s)
        if self._service.is_running and not self._is_closed:
            return
        try:
            retry_until_connected(self._take_up, within_s, check=self._check_not_closed)
        # a sharder that is not running must not stand in front of one that is
        except BaseException:
            self._latch.leave(_TRY_AGAIN_S)
            raise
        self._session.add_listener(self._wake)
        self._service.start()

    def close(self, timeout_s: float = 5.0) -> None:
        """Leave the latch, and close all queues, each in its own time. May be called again."""
        within_s = in_seconds("timeout_s", timeout_s)
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._session.remove_listener(self._wake)
        self._service.stop(within_s)
        self._latch.leave(within_s if self._session.state is SessionState.CONNECTED else 0.0)
        self._close_all(list(self._queues))
        if not self._is_lent:
            self._session.close()

    def get_queue(self) -> Q:
        """The queue of a shard to put into, chosen at random among those that are not full.

        Ask again for each put: the shard may be full by then.

        :raises QueueClosed: not started, or closed.
        """
        with self._lock:
            chosen = [name for name in self._plan.choice if name in self._queues]
            if self._is_closed or not self._queues:
                was = "closed" if self._is_closed else "not started"
                raise QueueClosed(f"the sharder of {self.queue_path} was {was}")
            return self._queues[chance.choice(chosen or list(self._queues))]

    @property
    def shard_count(self) -> int:
        return len(self._queues)

    @property
    def queue_paths(self) -> list[str]:
        with self._lock:
            return [join(self.queue_path, name) for name in self._queues]

    @property
    def is_leader(self) -> bool:
        """Whether this process could add shards when it last looked."""
        return self._is_leader

    def _check_not_closed(self) -> None:
        if self._is_closed:
            raise QueueClosed(f"the sharder of {self.queue_path} was closed; make a new one")

    def _take_up(self) -> None:
        self._look()
        if not self._queues:
            self._make_shard(None)
            self._look()
        if not self._queues:
            where = f"there is no shard in {self.queue_path}"
            raise ConnectionLost(f"{where}, and none could be made in the time given")

    def _run(self, service: Service) -> None:
        rest_s = self._policies.threshold_check_s
        while service.wait(rest_s) and self._session.state is not SessionState.CLOSED:
            service.wait(0)  # from here on news is looked at, whatever woke us
            rest_s = self._policies.threshold_check_s
            try:
                self._look()
            except LeaderqError as exc:
                is_usual = isinstance(exc, ConnectionLost | SessionExpired)
                level = logging.DEBUG if is_usual else logging.ERROR
                log.log(level, "shards cannot be checked queue=%s", self.queue_path, exc_info=True)
                rest_s = min(rest_s, _TRY_AGAIN_S)

    def _look(self) -> None:
        self._is_leader = False
        self._is_leader = self._latch.look()
        names = self._shards()
        self._adopt_all(names)
        self._close_all({*self._queues}.difference(names))
        plan = plan_shards(self._states(names), self._policies)
        with self._lock:
            self._plan = plan
        if self._is_leader:
            is_at_most = not (plan.fit or plan.needs_one_more)
            if is_at_most and not self._told_at_most:
                log.warning("all shards are full, at max_queues queue=%s", self.queue_path)
            self._told_at_most = is_at_most
            if plan.needs_one_more:
                self._make_shard(self._latch.seat)
                self._adopt_all(self._shards())

    def _shards(self) -> list[str]:
        names = children_made(self._session, self.queue_path, self._wake)
        strangers = {name for name in names if not is_shard(name)} - self._strangers
        self._strangers |= strangers
        for name in strangers:
            why = "not a shard, but a Java sharder puts items into it queue=%s child=%s"
            log.warning(why, self.queue_path, name)
        return sorted(filter(is_shard, names))

    def _states(self, names: Sequence[str]) -> Iterator[ShardState]:
        found = existing(self._session, [join(self.queue_path, name) for name in names])
        for path, (_, stat) in found.items():
            name, items = name_of(path), stat.num_children
            number = next_number(stat.cversion, items)
            yield ShardState(name, items, number, was_full=name in self._plan.full)

    def _make_shard(self, seat: Seat | None) -> None:
        """As the leader (``seat``), or the first one; nothing if somebody was faster."""
        # before the list: whoever makes a shard later writes it too
        data, stat = self._session.get(self.queue_path)
        if not self._queues and self._shards():
            return
        path = join(self.queue_path, new_shard_name())
        write = self._session.multi if seat is None else seat.write
        try:
            write([SetData(self.queue_path, data, stat.version), Create(path)])
            log.info("shard made shard=%s", path)
        except (BadVersion, NoNode, SeatLost) as exc:  # somebody was faster, or leads instead
            log.debug("shard not made shard=%s error=%s", path, exc)

    def _adopt_all(self, names: Sequence[str]) -> None:
        for name in names:
            if name in self._queues or self._is_closed:
                continue
            try:
                self._adopt(name)
            except (ConnectionLost, SessionExpired, SessionClosed, FromOutside):
                raise
            except BaseException:  # SystemExit too: no shard would be looked at any more
                if not self._service.is_running:
                    raise
                log.exception("shard cannot be used yet queue=%s shard=%s", self.queue_path, name)

    def _adopt(self, name: str) -> None:
        queue = self._allocator(self._session, join(self.queue_path, name))
        require(method_problem("what the allocator returned", queue, "start", "close"))
        try:
            queue.start()
        except BaseException:
            self._close(name, queue)
            raise
        with self._lock:
            if not self._is_closed:
                self._queues[name] = queue
                self._plan = replace(self._plan, fit=(*self._plan.fit, name))  # put into at once
                return
        self._close(name, queue)

    def _close_all(self, names: Iterable[str]) -> None:
        with self._lock:
            queues = {name: self._queues.pop(name) for name in names if name in self._queues}
        for name, queue in queues.items():
            self._close(name, queue)

    def _close(self, name: str, queue: Q) -> None:
        try:
            queue.close()
        except FromOutside:
            raise
        except BaseException:  # the other shards are closed all the same
            log.exception("shard not closed queue=%s shard=%s", self.queue_path, name)

    def _wake(self, _news: object) -> None:
        """On the session's thread."""
        self._service.wake()
