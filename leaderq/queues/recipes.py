"""The four queues with framed items, which differ in how items are named, hence in order; and
Curator's builder of them.
"""

from __future__ import annotations

import logging
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import fields
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, overload

from leaderq.base import clock
from leaderq.base.arguments import in_seconds, is_number, require, timeout, unless, wanted
from leaderq.base.timeouts import Deadline
from leaderq.engine.serializers import BYTES, QueueSerializer
from leaderq.errors import (
    ConfigurationError,
    ConnectionLost,
    LeaderqError,
    NoPermission,
    QueueClosed,
    SessionExpired,
)
from leaderq.queues.admin import Browsed, ItemLetters, Purged, QueueAdmin
from leaderq.queues.admin.contents import removal
from leaderq.queues.consumers import ErrorMode, QueueConsumer, QueueOptions
from leaderq.queues.consuming import ConsumerDeathWatcher, Consumption, Item
from leaderq.queues.putting import PutListener, Putter
from leaderq.queues.wire.names import QueueKind, fixed_id, id_of, is_item, prefix_for
from leaderq.queues.wire.znodes import QueuePaths, explained
from leaderq.threads import Retry, primitives
from leaderq.zookeeper import AnyClient, Session, as_session
from leaderq.zookeeper.retrying import ITEM_RETRY, retry_until_connected
from leaderq.zookeeper.writing.writer import OVERTAKEN

log = logging.getLogger(__name__)
if TYPE_CHECKING:  # the default is for type checkers only: without a serializer a queue holds bytes
    from typing_extensions import TypeVar

    T = TypeVar("T", default=bytes)
else:
    from typing import TypeVar

    T = TypeVar("T")
R = TypeVar("R", bound="CuratorQueue[Any]")
_FIELDS = fields(QueueOptions)

_START_S = 15.0
_LEAST_CLOSE_S = 1.0


class CuratorQueue(ABC, Generic[T]):
    """What all five queues have: a session, which may be lent, a way in and a way out."""

    KIND: ClassVar[QueueKind]

    def __init__(self, client: AnyClient, paths: QueuePaths, options: QueueOptions[T]) -> None:
        self._is_lent = isinstance(client, Session)
        self._session = session = as_session(client)
        self._paths = paths
        is_framed = self.KIND is not QueueKind.SIMPLE
        self._putter = Putter(session, paths, options, is_framed=is_framed)
        self._consumption = Consumption(session, paths, self.KIND, options)
        self._lock = primitives.Lock()
        self._is_closed = False

    @property
    def path(self) -> str:
        """The queue's znode."""
        return self._paths.path

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def close(self) -> object: ...

    def __enter__(self: R) -> R:
        self.start()
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            self.close()
        except LeaderqError:
            if error is None:
                raise
            log.exception("closing failed after an error queue=%s", self.path)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.path!r}{', closed' if self._is_closed else ''})"

    def _check_open(self) -> None:
        if self._is_closed:
            raise QueueClosed(f"queue {self.path} was closed; make a new one")
        self._putter.check_open()
        self._session.check_open(self.path)

    def _until_connected(
        self, begin: Callable[[], object], deadline: Deadline, check: Callable[[], object]
    ) -> None:
        """Call ``begin`` until there is a connection.

        :raises ConnectionLost: there was none by ``deadline``.
        """
        patience_s = deadline.left_s(primitives.TIMEOUT_MAX)
        try:
            retry_until_connected(begin, patience_s, check=check)
        except NoPermission as exc:
            raise explained(exc, self._paths) from exc

    def _begin_to_take(self, deadline: Deadline) -> None:
        if not (self._consumption.is_pushed or self._consumption.is_started):
            self._until_connected(self._consumption.start, deadline, self._check_open)

    def _close(self, takers_s: float, puts_s: float) -> bool:
        """Close all parts; return whether all was settled in these times."""
        with self._lock:
            if self._is_closed:
                return True
            self._is_closed = True
        with ExitStack() as stack:  # the last one goes first, whatever fails
            if not self._is_lent:
                stack.callback(self._session.close)
            stack.callback(self._putter.close, puts_s)
            is_clean = self._consumption.close(takers_s)
        return is_clean and not self._putter.unsettled


class QueueRecipe(CuratorQueue[T]):
    """Base of the queues; use one of its subclasses.

    ``client``: a :class:`~leaderq.zookeeper.Session`, or a started ``KazooClient`` (which stays the
    caller's). ``path``: the queue's znode; made with its parents if it is not there. Keywords:

    * ``consumer``: a function of the value, or a :class:`~leaderq.queues.QueueConsumer`; or
      ``consume_batch``: a function of a list of up to ``batch_items`` values. Without either, the
      queue puts, and :meth:`take` returns items on request. Coroutine functions run on an event
      loop of the queue, ``concurrency`` at a time;
    * ``serializer``: ``BYTES``, ``TEXT``, ``JSON``, or any
      :class:`~leaderq.queues.QueueSerializer`;
    * ``lock_path``: where an item is marked as being worked on, so that a crash of its consumer
      does not lose it. It must be the same for all processes of one queue, Java's too;
    * ``meta_path``: where the queue keeps its side data, by default beside its path, at
      ``<path>-meta`` and ``<path>-dead``: for users that may not create znodes there. The same for
      all processes;
    * ``max_items``: a put waits while the queue holds that many, tight among leaderq's producers;
    * ``put_in_background``: puts do not wait until stored; failures go to the listeners,
      :meth:`flush_puts` and :meth:`close`;
    * ``final_flush_s``: how long :meth:`close` waits, in seconds, for puts on their way, and for
      consumers at work;
    * ``concurrency`` items are worked on at a time, on threads of the queue or on ``executor``, a
      thread pool; by default one, or as many as the pool has threads;
    * ``claim_ahead``: values are claimed before the consumer is free for them, as many as it
      handles in 50 ms at its measured rate, at most this many (100). Without a lock path they are
      deleted when claimed, and lost if the process dies; 0 claims nothing ahead, and is slower.
      Items that a hanging consumer has not begun are released after 150 ms;
    * ``error_mode`` and ``retry``: what becomes of an item whose consumer raised or, with a lock
      path, died;
    * ``compress``: write items as gzip (all readers must be leaderq, or Curator 5.8 with its
      compression switched on);
    * ``name``: in logs and names of threads.

    :raises ConfigurationError: some of this cannot be used.
    """

    def __init__(
        self,
        client: AnyClient,
        path: str,
        *,
        consumer: Callable[[T], object] | QueueConsumer[T] | None = None,
        consume_batch: Callable[[Sequence[T]], object] | None = None,
        serializer: QueueSerializer[T] = BYTES,  # type: ignore[assignment]
        lock_path: str | None = None,
        meta_path: str | None = None,
        max_items: int | None = None,
        put_in_background: bool = False,
        final_flush_s: float = 5.0,
        executor: primitives.Executor | None = None,
        concurrency: int | None = None,
        batch_items: int = 100,
        error_mode: ErrorMode = ErrorMode.REQUEUE,
        retry: Retry | None = None,
        compress: bool = False,
        name: str | None = None,
        min_items_before_refresh: int = 0,
        claim_ahead: int = 100,
    ) -> None:
        given = {**locals(), "retry": retry or ITEM_RETRY}
        paths = QueuePaths(path, lock_path, meta_path)
        refresh, lock, meta = min_items_before_refresh, lock_path, meta_path
        is_apart = not f"{meta or ''}/".startswith((path + "/", f"{lock}/"))
        place = f"meta_path={meta!r} is in the queue or its locks; give a place of its own"
        own = f"path={path!r}, lock_path={lock!r}: give both znodes of their own"
        bar = f"path {path!r} of an id queue holds '|', which separates the ids in it"
        order = f"min_items_before_refresh={refresh!r}: only a priority queue can use it"
        require(
            unless(is_apart, place),
            unless(path != "/" and lock != path, own),
            unless(self.KIND is not QueueKind.ID or "|" not in path, bar),
            unless(not refresh or self.KIND is QueueKind.PRIORITY, order),
        )
        options: QueueOptions[T] = QueueOptions(**{one.name: given[one.name] for one in _FIELDS})
        super().__init__(client, paths, options)
        self._final_flush_s = final_flush_s
        self._admin = QueueAdmin(self._session, paths, self.KIND)
        self._death_watcher: ConsumerDeathWatcher | None = None
        if lock_path is not None:
            self._death_watcher = ConsumerDeathWatcher(self._session, paths, self.KIND)
        self._is_started = False

    @property
    def lock_path(self) -> str | None:
        """The path where items that are being worked on are marked; ``None`` without one."""
        return self._paths.lock_path

    def start(self) -> None:
        """Make the queue's znodes, and begin to consume if there is a consumer; does nothing if it
        was started before.

        :raises QueueClosed: the queue was closed; make a new one.
        :raises ConnectionLost: the servers did not answer within some 15 s.
        """
        with self._lock:
            if self._is_closed:
                raise QueueClosed(f"queue {self.path} was closed; make a new one")
            if self._is_started:
                return
            self._until_connected(self._begin, Deadline(_START_S), lambda: None)
            self._is_started = True

    def _begin(self) -> None:
        is_pushed = self._consumption.is_pushed
        self._putter.start(is_opened=not is_pushed)
        if self._death_watcher is not None:
            self._death_watcher.start()
        if is_pushed:
            self._consumption.start()

    def close(self) -> None:
        """Stop consuming (begun items are finished), wait for the puts on their way, and leave.

        Waits at most ``final_flush_s`` seconds for consumers, and as long for puts; never hangs. A
        put that waits in another thread raises ``QueueClosed``. Items that :meth:`take` returned
        and that are not settled go to others, if there is a lock path. May be called again.

        :raises PutsFailed: puts in the background failed, and nobody has been told yet.
        """
        if self._death_watcher is not None:
            self._death_watcher.close()
        if not self._close(max(_LEAST_CLOSE_S, self._final_flush_s), self._final_flush_s):
            log.warning("work not done when its queue was closed queue=%s", self.path)

    def add_put_listener(self, listener: PutListener) -> None:
        """``listener`` hears of each item stored, and of each that was not.

        :raises ConfigurationError: it lacks a method of a :class:`PutListener`, or one is a
            coroutine function.
        """
        self._putter.add_listener(listener)

    def remove_put_listener(self, listener: PutListener) -> None:
        """Undo :meth:`add_put_listener`."""
        self._putter.remove_listener(listener)

    def flush_puts(self, timeout_s: float = 10.0) -> bool:
        """Wait until all puts are stored or have failed, and listeners have been told; returns
        whether that happened within ``timeout_s`` seconds.

        :raises PutsFailed: puts in the background have failed since the last time, and there was no
            listener to tell.
        """
        require(timeout("timeout_s", timeout_s))
        return self._putter.flush(timeout_s)

    def cancel(self, name: str) -> bool:
        """Remove the item with this name, which :meth:`put` returned; returns whether it was
        removed. ``False``: a consumer has the item, or had it, or has claimed it ahead. Waits for
        the connection.

        :raises QueueClosed: not started, or closed before the item was removed.
        :raises ConfigurationError: ``name`` is not the name of an item of this kind of queue; such
            as the ``True`` of a :meth:`put` that does not know the name.
        """
        given: Any = name
        is_name = isinstance(given, str) and "/" not in given and is_item(self.KIND, given)
        require(wanted("name", given, is_name, "the name that put() returned"))
        self._check_open()
        return self._removed([name]) == 1

    def _removed(self, names: Iterable[str]) -> int:
        submit = self._putter.writer.submit
        sent = [submit(removal(self._paths, name)) for name in names]
        errors = [one.exception() for one in sent]
        for error in errors:
            if error is not None and not isinstance(error, OVERTAKEN):  # somebody was first
                raise error
        return errors.count(None)

    @overload
    def take(self, timeout_s: None = None) -> Item[T]: ...

    @overload
    def take(self, timeout_s: float) -> Item[T] | None: ...

    def take(self, timeout_s: float | None = None) -> Item[T] | None:
        """Return the next item, or ``None`` if none comes within ``timeout_s`` seconds
        (``timeout_s=None``: wait until one comes). Acknowledge it with ``item.ack()``, or leave its
        ``with`` block without an error.

        :raises QueueClosed: not started, closed meanwhile, or the queue has a consumer.
        :raises SessionClosed: the session was closed by its owner.
        """
        deadline = Deadline.asked(timeout_s, None)
        try:
            self._begin_to_take(deadline)
        except (ConnectionLost, SessionExpired):
            return None
        return self._consumption.take(deadline, self._check_open)

    def __iter__(self) -> Iterator[Item[T]]:
        """The items, as :meth:`take` returns them, until the queue is closed; acknowledge each."""
        while True:
            try:
                item = self.take()
            except QueueClosed:
                if not self._is_closed:
                    raise
                return
            yield item

    def pause(self) -> None:
        """Begin no new item in this object until :meth:`resume`. (``leaderq queue pause`` pauses
        all consumers.)
        """
        self._consumption.engine.pause_switch.set(True)

    def resume(self) -> None:
        """End the pause by :meth:`pause`; an operator's pause stays in force."""
        self._consumption.engine.pause_switch.set(False)

    @property
    def is_paused(self) -> bool:
        """Whether this object begins no new item, because of :meth:`pause` or an
        operator's pause.
        """
        return self._consumption.engine.pause_switch.is_paused

    def depth(self) -> int:
        """How many znodes the queue has, including those being worked on; one small request."""
        return self._admin.depth()

    def browse(self, limit: int | None = None) -> Iterator[Browsed]:
        """Yield the items that are there now, in queue order; nothing is taken."""
        return self._admin.browse(limit)

    def purge(self, *, held_too: bool = False) -> Purged:
        """Delete the items that are there now; those being worked on stay unless ``held_too``."""
        return self._admin.purge(held_too=held_too)

    def delete(self, *, force: bool = False) -> int:
        """Delete the queue's znode and everything beside it; this object is closed first. Returns
        how many znodes were deleted.

        :raises RequestRefused: the queue holds items or dead letters, or others consume it; with
            ``force`` these are deleted too.
        """
        if not self._is_lent:
            raise ConfigurationError("delete() needs a session that is not closed with the queue")
        self.close()
        return self._admin.delete(force=force)

    @property
    def dead_letters(self) -> ItemLetters:
        """The dead letters: ``count``, ``browse``, ``requeue``, ``drop``."""
        return self._admin.dead_letters


_PREFIX = prefix_for(QueueKind.PLAIN)
_of_id = partial(prefix_for, QueueKind.ID)
_of_priority = partial(prefix_for, QueueKind.PRIORITY)
_Sec = float | None
_Due = datetime | float | None


class DistributedQueue(QueueRecipe[T]):
    """A queue in ZooKeeper that Java's Curator may share. Keywords: those of
    :class:`~leaderq.queues.QueueRecipe`.

    *Guarantees:* a put (not in the background) that returned a name or ``True`` has stored the
    item, once, whatever happened to the connection. One consumer with ``concurrency=1`` begins
    items in the order they were stored in; a failed one goes behind those that wait
    (``ErrorMode.REQUEUE``) or blocks those behind it (``KEEP``). With ``lock_path`` an item is
    never lost: it is removed only when the work on it is done, and goes to another consumer as soon
    as the session of its own is over; that one can write nothing then. *Not guaranteed:* an order
    among several consumers. With ``lock_path``, exactly-once work: if a consumer dies between its
    work and the acknowledgement, the work is repeated (write its results with ``item.ack(ops)``).
    Without ``lock_path``: a consumer that dies loses the znode or batch in hand, and up to
    ``claim_ahead`` values (100; the last znode may exceed it) that it had not begun, because all of
    them were deleted when they were claimed. That a Java consumer hears at once of items that are
    free again, if no process of leaderq is left.
    """

    KIND: ClassVar[QueueKind] = QueueKind.PLAIN

    def put(self, item: T, *, timeout_s: _Sec = None) -> str | bool:
        """Put ``item`` at the tail, and wait until it is stored (``put_in_background``: until it is
        accepted).

        Returns the name of its znode, for :meth:`cancel`; ``True`` if that is not known, because
        the put is in the background or the answer was lost. ``False``: the item could not be sent
        within ``timeout_s`` seconds (no room, no connection), and will not be sent.

        :raises TooLarge: it does not fit into a request; with its size and the limit.
        :raises ConnectionLost: it was sent within ``timeout_s``, and not answered within another
            second; it may have been stored.
        :raises QueueClosed: not started, or closed before it was sent. Also what the serializer
            raises.
        """
        return self._putter.put([item], _PREFIX, timeout_s)

    def put_multi(self, items: Iterable[T], *, timeout_s: _Sec = None) -> str | bool:
        """Put all ``items`` as one znode, locked and retried as one. Otherwise as :meth:`put`."""
        return self._putter.put_multi(items, _PREFIX, timeout_s)

    def put_many(self, items: Iterable[T], *, timeout_s: _Sec = None) -> int:
        """Put each of ``items`` as a znode of its own, many in one request, in order; returns how
        many were stored (accepted, in the background): all, unless ``timeout_s`` seconds passed.
        Any iterable will do, and memory stays bounded.

        :raises PutsFailed: some were not stored, or not certainly; it says which. The others were.
        """
        return self._putter.put_many(items, lambda item: (item, _PREFIX), timeout_s)


class DistributedIdQueue(QueueRecipe[T]):
    """A queue in ZooKeeper whose items carry an id of the user's, by which they can be removed. Ids
    need not be unique. Keywords: those of :class:`~leaderq.queues.QueueRecipe`; the path must not
    hold ``|``, which separates ids.

    *Guarantees:* as :class:`~leaderq.queues.DistributedQueue`. The count that :meth:`remove`
    returns is exact, whatever happens to the connection; with ``lock_path``, no item that somebody
    works on is removed. A failed item that is requeued keeps its id. *Not guaranteed:* that ids are
    distinct which differ only in ``/``, ``|`` and ``_``: as in Curator, the first two are stored as
    ``_``.
    """

    KIND: ClassVar[QueueKind] = QueueKind.ID

    def put(self, item: T, id: str, *, timeout_s: _Sec = None) -> str | bool:
        """As :meth:`DistributedQueue.put`, under ``id``.

        :raises ConfigurationError: ``id`` is empty, or holds characters that ZooKeeper refuses.
        """
        return self._putter.put([item], _of_id(id=id), timeout_s)

    def put_multi(self, items: Iterable[T], id: str, *, timeout_s: _Sec = None) -> str | bool:
        """Put all ``items`` as one znode under ``id`` (Curator cannot do that, but reads it)."""
        return self._putter.put_multi(items, _of_id(id=id), timeout_s)

    def put_many(self, items: Iterable[tuple[T, str]], *, timeout_s: _Sec = None) -> int:
        """As :meth:`DistributedQueue.put_many`, of pairs ``(item, id)``."""
        return self._putter.put_many(items, lambda pair: (pair[0], _of_id(id=pair[1])), timeout_s)

    def remove(self, id: str) -> int:
        """Remove all items put under ``id`` that nobody works on; returns their number. Lists the
        whole queue. Waits for the connection.

        :raises QueueClosed: not started, or closed before all were removed.
        """
        self._check_open()
        wanted = fixed_id(id)
        items = (name for name in self._admin.names() if is_item(QueueKind.ID, name))
        return self._removed(sorted(name for name in items if id_of(name) == wanted))


class DistributedPriorityQueue(QueueRecipe[T]):
    """A queue in ZooKeeper, by priority: any 32-bit whole number, lower first; equal ones first in,
    first out. Keywords: those of :class:`~leaderq.queues.QueueRecipe`, and
    ``min_items_before_refresh`` (0).

    *Guarantees:* as :class:`~leaderq.queues.DistributedQueue` about storing and losing. A free
    consumer begins the most urgent item that it knows of; it learns of new ones at once, and
    considers them before each next item (``min_items_before_refresh=n``: after n items of one
    listing). A failed item that is requeued keeps its priority. *Not guaranteed:* that a consumer
    already knows of an item stored this moment; that a Java consumer keeps the priority of what it
    requeues (it makes it more urgent than all others); an order among several consumers.
    """

    KIND: ClassVar[QueueKind] = QueueKind.PRIORITY

    def put(self, item: T, priority: int, *, timeout_s: _Sec = None) -> str | bool:
        """As :meth:`DistributedQueue.put`, with this priority.

        :raises ConfigurationError: ``priority`` is not a 32-bit whole number.
        """
        return self._putter.put([item], _of_priority(priority=priority), timeout_s)

    def put_multi(self, items: Iterable[T], priority: int, *, timeout_s: _Sec = None) -> str | bool:
        """Put all ``items`` as one znode with this priority."""
        prefix = _of_priority(priority=priority)
        return self._putter.put_multi(items, prefix, timeout_s)

    def put_many(self, items: Iterable[T], priority: int, *, timeout_s: _Sec = None) -> int:
        """As :meth:`DistributedQueue.put_many`, all with this priority."""
        prefix = _of_priority(priority=priority)
        return self._putter.put_many(items, lambda item: (item, prefix), timeout_s)


class DistributedDelayQueue(QueueRecipe[T]):
    """A queue in ZooKeeper whose items wait until they are due. Keywords: those of
    :class:`~leaderq.queues.QueueRecipe`.

    *Guarantees:* as :class:`~leaderq.queues.DistributedQueue` about storing and losing. No item is
    given out before it is due, by the clock of the consumer's host. One consumer with
    ``concurrency=1`` begins items by due time, equal ones in the order they were stored in (Curator
    has no order among those). A failed item that is requeued keeps its due time. *Not guaranteed:*
    that the clocks of the hosts agree: a difference shifts delivery by as much. That a Java
    consumer keeps the due time of what it requeues: it is due at once then.
    """

    KIND: ClassVar[QueueKind] = QueueKind.DELAY

    def put(
        self, item: T, *, delay_s: _Sec = None, due: _Due = None, timeout_s: _Sec = None
    ) -> str | bool:
        """As :meth:`DistributedQueue.put`, due in ``delay_s`` seconds, or at ``due``: a
        ``datetime`` (without a zone: local time), or seconds since 1970. With neither: now.

        :raises ConfigurationError: both are given, or a delay below 0, or a time before 1970, or
            what is not a time.
        """
        return self._putter.put([item], _of_time(delay_s, due), timeout_s)

    def put_multi(
        self, items: Iterable[T], *, delay_s: _Sec = None, due: _Due = None, timeout_s: _Sec = None
    ) -> str | bool:
        """Put all ``items`` as one znode, due at one time."""
        return self._putter.put_multi(items, _of_time(delay_s, due), timeout_s)

    def put_many(
        self, items: Iterable[T], *, delay_s: _Sec = None, due: _Due = None, timeout_s: _Sec = None
    ) -> int:
        """As :meth:`DistributedQueue.put_many`, all due at one time."""
        prefix = _of_time(delay_s, due)
        return self._putter.put_many(items, lambda item: (item, prefix), timeout_s)


def _of_time(delay_s: _Sec, due: _Due) -> str:
    return prefix_for(
        QueueKind.DELAY, due_ms=due_ms(delay_s=delay_s, due=due, now_s=clock.calendar_s())
    )


def due_ms(*, delay_s: _Sec, due: _Due, now_s: float) -> int:
    """The due time in milliseconds since the epoch; pure.

    :raises ConfigurationError: see :meth:`DistributedDelayQueue.put`.
    """
    if due is not None and delay_s is not None:
        raise ConfigurationError(f"delay_s={delay_s!r} and due={due!r}: give one of them")
    if due is None:
        return round((now_s + in_seconds("delay_s", 0.0 if delay_s is None else delay_s)) * 1000)
    at_s: Any = due
    if isinstance(due, datetime):
        with suppress(ArithmeticError, ValueError, OSError):  # of the calendar's first or last year
            at_s = due.timestamp()
    is_fit = is_number(at_s) and abs(at_s) < math.inf
    require(wanted("due", due, is_fit, "a datetime, or seconds since 1970"))
    whole_ms: int = round(at_s * 1000)
    return whole_ms


class QueueBuilder(Generic[T]):
    """``QueueBuilder.builder(client, consumer, TEXT, "/q").lock_path("/l").build_queue()``.

    One builder can build several queues, none of them started. :class:`QueueRecipe` explains the
    settings; those that Curator does not have go into :meth:`keywords`. Unlike Curator's, puts wait
    until they are stored, unless :meth:`put_in_background` is called.
    """

    def __init__(self, client: AnyClient, path: str, **keywords: Any) -> None:
        self._client = client
        self._path = path
        self._keywords = keywords

    @classmethod
    def builder(
        cls,
        client: AnyClient,
        consumer: Callable[[T], object] | QueueConsumer[T] | None = None,
        serializer: QueueSerializer[T] = BYTES,  # type: ignore[assignment]
        path: str = "",
    ) -> QueueBuilder[T]:
        """Return a builder of queues at ``path``. Without a consumer, items are taken on
        request.
        """
        return QueueBuilder(client, path, consumer=consumer, serializer=serializer)

    def keywords(self, **keywords: Any) -> QueueBuilder[T]:
        """Set any keywords of the constructors, such as ``concurrency``."""
        self._keywords |= keywords
        return self

    def lock_path(self, path: str) -> QueueBuilder[T]:
        return self.keywords(lock_path=path)

    def max_items(self, count: int) -> QueueBuilder[T]:
        return self.keywords(max_items=count)

    def put_in_background(self, wanted: bool = True) -> QueueBuilder[T]:
        return self.keywords(put_in_background=wanted)

    def final_flush_s(self, seconds: float) -> QueueBuilder[T]:
        return self.keywords(final_flush_s=seconds)

    def executor(self, executor: primitives.Executor) -> QueueBuilder[T]:
        return self.keywords(executor=executor)

    def build_queue(self) -> DistributedQueue[T]:
        return DistributedQueue(self._client, self._path, **self._keywords)

    def build_id_queue(self) -> DistributedIdQueue[T]:
        return DistributedIdQueue(self._client, self._path, **self._keywords)

    def build_priority_queue(
        self, min_items_before_refresh: int = 0
    ) -> DistributedPriorityQueue[T]:
        more = {**self._keywords, "min_items_before_refresh": min_items_before_refresh}
        return DistributedPriorityQueue(self._client, self._path, **more)

    def build_delay_queue(self) -> DistributedDelayQueue[T]:
        return DistributedDelayQueue(self._client, self._path, **self._keywords)
