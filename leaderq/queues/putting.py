"""The way of an item into a queue: serialised, framed, sent in batches, stored exactly once by the
producer's writer (:mod:`leaderq.zookeeper.writing`). The caller, the listeners,
:meth:`Putter.flush` and :meth:`Putter.close` are told what became of it.

States: *new*, *started*, *closed*; unless it is started, a put raises ``QueueClosed``. On each
failure:

* **the serializer raises, or the item is too large**: the put raises it, and nothing is counted;
* **a reply or the connection is lost**: the put waits; the item is stored once, in its place;
* **time is up** (``timeout_s``): if the item was certainly not sent, the put returns ``False``. If
  it was sent, the put waits a second more, and then raises ``ConnectionLost``;
* **a bounded queue is full, or too much is on its way** (8192 znodes, 48 MiB): the put waits;
* **a put in the background fails**: listeners hear of it; if there are none it is logged, and
  raised by the next flush or the close;
* **a listener is slow, or puts something itself**: listeners have a thread of their own;
* **close**: a put that somebody waits for, and that cannot be sent at once, raises ``QueueClosed``;
  those in the background have ``flush_s``, and fail then. It never hangs.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Sized
from itertools import groupby
from operator import attrgetter
from types import MethodType
from typing import Any, Generic, TypeVar

from leaderq.base import chance
from leaderq.base.arguments import method_problem, require, several
from leaderq.base.timeouts import Deadline
from leaderq.engine.serializers import unchanging
from leaderq.errors import (
    BadVersion,
    ConnectionLost,
    LeaderqError,
    NoNode,
    PutsFailed,
    QueueClosed,
    SessionClosed,
    TooLarge,
)
from leaderq.observability import tracing
from leaderq.observability.figures import QueueFigures
from leaderq.queues.consumers import QueueOptions
from leaderq.queues.wire import payload
from leaderq.queues.wire.names import LAST_SEQUENCE, sequence_of
from leaderq.queues.wire.znodes import QueuePaths, explained
from leaderq.threads import Capacity, Listeners, Service, primitives
from leaderq.zookeeper import Create, Operation, Session, SetData, Subscription
from leaderq.zookeeper.paths import join, name_of, own_path
from leaderq.zookeeper.reading import existing
from leaderq.zookeeper.writing import SequencedWriter
from leaderq.zookeeper.writing.groups import (
    MULTI_BYTES,
    MULTI_OPS,
    OperationGroup,
    Told,
    batched,
    packed,
    tell,
)

log = logging.getLogger(__name__)
T = TypeVar("T")
V = TypeVar("V")

MAX_ITEMS = 8192
"""Znodes that may be on their way at a time; further puts wait."""
MAX_BYTES = 48 << 20
"""Bytes of data that may be on their way at a time."""
WARN_FROM = LAST_SEQUENCE // 10 * 9
"""From this number on there is a warning, once per queue object: the server's counter of a path has
31 bits and never goes back; past its end, names collide or lose their order. A queue that was
deleted and made again, or a new shard, starts at 0.
"""
_OP_BYTES = 96
KEPT_FAILURES = 100
"""Failures whose items are kept; the others are counted."""
_GUARD_BYTES = 1024
"""Bytes of a request left to the guard of a bounded queue."""
_RECOUNT_S = 1.0  # a watch tells the news; this is for lost ones
_POLL_S = 0.1
_CALM_S = 0.005
_CLOSE_S = 2.0
_ANSWER_S = 1.0
"""Seconds beyond a put's time-out to wait for the answer to a sent request."""
_GRACE_S = 0.25
"""Waiting puts fail if they are not sent within so many seconds of the close."""
_CHUNK = 256


class BoundedPut:
    """Puts into a queue that may hold at most ``max_items`` znodes. The bound is exact among all
    producers that put this way. A queue without a bound uses the writer directly instead.

    One thread sends one multi at a time: ``SetData(bound, version)``, then as many creates as there
    is room for. The bound (a znode beside the queue) is read *before* the number of the queue's
    children (its ``Stat``). So if the version still fits when the multi is applied, no other
    producer has put anything since, and the room is real; consumers can only have made more. If it
    does not fit, nothing was stored, and it is tried again. A persistent watch tells when to count
    again. Java producers do not know the bound: they are not held back by it, and what they put
    counts.
    """

    def __init__(
        self, writer: SequencedWriter, session: Session, paths: QueuePaths, most: int, name: str
    ) -> None:
        self._writer, self._session, self._paths, self._most = writer, session, paths, most
        self._lock = primitives.Lock()
        self._waiting: deque[OperationGroup] = deque()
        self._end: LeaderqError | None = None
        """Why nothing more is sent."""
        self._known: tuple[int, int] | None = None
        """The version of the bound and the room, if what they were counted from still holds."""
        self._watch: Subscription | None = None
        self._service = Service(f"leaderq-{name}-bound", self._run)

    def send(self, groups: Sequence[OperationGroup], *, is_first: bool = False) -> None:
        self._service.start()
        with self._lock:
            if (end := self._end) is None:
                if is_first:
                    self._waiting.extendleft(reversed(groups))
                else:
                    self._waiting.extend(groups)
                self._service.wake()
                return
        tell(groups, end)

    def withdraw_those(self, wanted: Callable[[OperationGroup], bool]) -> list[OperationGroup]:
        with self._lock:
            found = [group for group in self._waiting if wanted(group)]
            self._waiting = deque(group for group in self._waiting if not wanted(group))
            return found

    def close(self, timeout_s: float) -> bool:
        """Waiting puts fail with ``QueueClosed``; those under way are left to the writer."""
        self._finish(QueueClosed("the queue was closed before there was room for this"))
        self._service.stop(1.0)
        return self._writer.close(timeout_s)

    def _finish(self, error: LeaderqError) -> None:
        with self._lock:
            self._end = self._end or error
            left, self._waiting = self._waiting, deque()
        tell(list(left), error)

    def _run(self, service: Service) -> None:
        while self._end is None:
            service.wait(0)
            try:
                if self._waiting:
                    self._send_some()
                else:
                    self._stop_watching()
                    service.wait()
            except LeaderqError as exc:
                if isinstance(exc, SessionClosed) or self._writer.is_over:
                    self._finish(exc)
                is_usual = isinstance(exc, ConnectionLost) or self._end is not None
                level = logging.DEBUG if is_usual else logging.WARNING
                log.log(level, "items not counted now queue=%s error=%s", self._paths.path, exc)
                service.wait(_POLL_S)
        self._stop_watching()

    def _send_some(self) -> None:
        paths = self._paths
        (version, room), self._known = self._known or self._counted(), None
        if room <= 0:
            if self._watch is not None:
                self._service.wait(_RECOUNT_S)
            else:  # something may have happened before the watch was set: count again
                self._watch = self._session.watch_node(paths.path, lambda _: self._service.wake())
            return
        with self._lock:
            puts = packed(self._waiting, min(room, MULTI_OPS) + 1, MULTI_BYTES)
        if not puts:  # they were withdrawn
            return
        guard = SetData(paths.bound, b"", version)
        creates = (op for put in puts for op in put.operations)
        sent = self._writer.submit([guard, *creates], are_valid=True)
        error = sent.exception()  # the writer tells each group: at its own close at the latest
        if error is None:
            for put, made in zip(puts, (sent.result() or ())[1:], strict=False):
                put.results = [made]
            tell(puts)
            self._known = (version + 1, room - len(puts)) if room > len(puts) else None
        elif isinstance(error, BadVersion | NoNode) and error.index == 0:
            self.send(puts, is_first=True)
            # several producers that meet here should not meet again at once
            self._service.wait(chance.random() * _CALM_S)
        else:
            tell(puts, error if isinstance(error, LeaderqError) else ConnectionLost(str(error)))

    def _counted(self) -> tuple[int, int]:
        bound, path = self._paths.bound, self._paths.path
        found = existing(self._session, (bound, path))  # in this order
        if bound not in found:
            self._session.ensure_path(bound)
            return self._counted()
        return found[bound][1].version, self._most - (
            found[path][1].num_children if path in found else 0
        )

    def _stop_watching(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()


class Put(OperationGroup):
    """One znode to create, with ``values`` in it, under a name that begins with ``path``.
    ``is_multi``: ``put_multi`` made it.

    Thousands of these wait at a time, and whatever the garbage collector must look at costs more
    than all else: so each item is a single object, its operation is made only when it is sent, and
    a lone value stands for itself.
    """

    __slots__ = ("content", "error", "is_multi", "path", "value", "waiter")

    def __init__(
        self,
        path: str,
        content: bytes,
        extra_bytes: int,
        told: Told,
        value: Any,
        waiter: PutResults | None,
        *,
        is_multi: bool,
    ) -> None:
        path_bytes = len(path) * (1 if path.isascii() else 4)
        super().__init__((), _OP_BYTES + path_bytes + len(content) + extra_bytes, told)
        self.count = 1
        self.path, self.content, self.value = path, content, value
        self.waiter, self.is_multi = waiter, is_multi
        self.error: LeaderqError | None = None
        """Why it was not stored."""

    @property
    def values(self) -> Sequence[Any]:
        return self.value if self.is_multi else (self.value,)

    @property
    def operations(self) -> Sequence[Operation]:
        return (Create(self.path, self.content, False, True),)

    @property
    def made(self) -> str | None:
        """The name of the znode, once it is stored, unless the answer was lost."""
        return name_of(self.results[0]) if self.results else None


class PutResults:
    """Waits for puts; keeps the first failures and counts the others."""

    def __init__(self) -> None:
        self._changed = primitives.Condition()
        self._open = 0
        self.stored = 0
        self.failed = 0
        self.failures: list[tuple[Any, BaseException]] = []

    def expect(self, count: int) -> None:
        with self._changed:
            self._open += count

    def on_outcome(self, puts: Sequence[Put], error: LeaderqError | None) -> None:
        if error is not None:
            for put in puts:
                self.fail(put.value, error)
        self.forget(len(puts), stored=len(puts) if error is None else 0)

    def fail(self, value: Any, error: BaseException, count: int = 1) -> None:
        with self._changed:
            self.failed += count
            if len(self.failures) < KEPT_FAILURES:
                self.failures.append((value, error))

    def forget(self, count: int, *, stored: int = 0) -> None:
        """These puts are not on their way any more; ``stored`` of them were stored."""
        with self._changed:
            self.stored += stored
            self._open -= count
            if not self._open:
                self._changed.notify_all()

    def wait(self, timeout_s: float | None) -> int:
        """Wait until no put is on its way, for at most ``timeout_s`` seconds; returns how many
        still are.
        """
        with self._changed:
            self._changed.wait_for(lambda: not self._open, timeout_s)
            return self._open

    def take(self) -> int:
        """Return how many puts were stored since the last call.

        :raises PutsFailed: others failed since then.
        """
        with self._changed:
            stored, failed, failures = self.stored, self.failed, self.failures
            self.stored, self.failed, self.failures = 0, 0, []
        if failed:
            raise PutsFailed(stored=stored, failed=failed, failures=failures)
        return stored


class PutListener:
    """Hears what became of each put; override what is of interest.

    Called on one thread of the queue, in the order of the outcomes. Exceptions that it raises are
    logged and otherwise ignored.
    """

    def put_completed(self, item: Any) -> None:
        """``item`` is stored."""

    def put_multi_completed(self, items: Sequence[Any]) -> None:
        """``items`` are stored, in one znode."""

    def put_failed(self, items: Sequence[Any], error: LeaderqError) -> None:
        """``items`` of one znode were not stored; after ``ConnectionLost`` they may have been
        stored.
        """


def _tell(listener: PutListener, put: Put) -> None:
    if put.error is not None:
        listener.put_failed(put.values, put.error)
    elif put.is_multi:
        listener.put_multi_completed(put.values)
    else:
        listener.put_completed(put.value)


class Putter(Generic[T]):
    """Puts items into one queue; see the module. May be used from any thread, except from callbacks
    of the session.

    *Guarantees:* items put by one thread are stored in the order of the puts, whatever happens to
    the connection; failed items are missing. *Not guaranteed:* an order among several threads.
    """

    def __init__(
        self,
        session: Session,
        paths: QueuePaths,
        options: QueueOptions[T],
        *,
        is_framed: bool = True,
    ) -> None:
        own_path(paths.path)
        self._is_framed = is_framed
        self._figures = QueueFigures(paths.path, lambda _: {"pending_puts": self.unsettled})
        self._session = session
        self._paths = paths
        self._options = options
        self._serialize = options.serializer.serialize
        self._name = options.name or name_of(paths.path)
        guard = join(paths.tallies, f"put-{chance.uuid4().hex}")
        self.writer = SequencedWriter(session, guard)
        """Carries all writes of this producer."""
        self._limit = self.writer.limit - _GUARD_BYTES
        self._in_flight = Capacity(MAX_ITEMS, MAX_BYTES)
        self._listeners: Listeners[Put] = Listeners(
            f"leaderq-{self._name}-listeners", has_thread=True, on_told=self._told
        )
        self._has_warned = False
        self._lock = primitives.Lock()
        self._sender: SequencedWriter | BoundedPut = self.writer
        if (most := options.max_items) is not None:
            self._sender = BoundedPut(self.writer, session, paths, most, self._name)
        self._is_started = not is_framed  # a simple queue needs no start
        self._is_closed = False
        self._unheard = PutResults()  # of puts in the background that no listener is told of
        self._on_puts = self._settled  # one object for all puts

    def add_listener(self, listener: PutListener) -> None:
        methods = "put_completed", "put_multi_completed", "put_failed"
        require(method_problem("listener", listener, *methods))
        self._listeners.add(MethodType(_tell, listener))

    def remove_listener(self, listener: PutListener) -> None:
        self._listeners.remove(MethodType(_tell, listener))

    def start(self, *, is_opened: bool = True) -> None:
        """Create the queue's znodes, and open the writer. Unless ``is_opened``, the first put opens
        the writer, because the queue may only consume. After an error, call it again.
        """
        for path in filter(None, (self._paths.path, self._paths.lock_path)):
            self._session.ensure_path(path)
        if is_opened:
            self.writer.open()
        self._is_started = True

    def check_open(self) -> None:
        if self._is_closed or not self._is_started:
            state = "closed" if self._is_closed else "not started; call start()"
            raise QueueClosed(f"queue {self._paths.path} is {state}")

    def close(self, flush_s: float) -> None:
        """Wait at most ``flush_s`` seconds for puts on their way, and close; may be called again.

        :raises PutsFailed: puts in the background failed, now or earlier, and nobody has been told.
        """
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
        if not is_first:
            return
        self._in_flight.close(lambda: QueueClosed("the queue was closed; nothing was put"))
        deadline = Deadline(flush_s)
        self._has_emptied(min(_GRACE_S, flush_s))
        unsent = self._withdrawn(lambda put: put.waiter is not None)
        tell(unsent, QueueClosed("the queue was closed before this was sent"))
        if not self._has_emptied(flush_s):
            left = self.unsettled
            log.warning("puts not settled at close queue=%s puts=%d", self._paths.path, left)
        self._sender.close(deadline.left_s(flush_s))
        self._has_emptied(_CLOSE_S)
        self._listeners.stop(_CLOSE_S)
        self._unheard.take()

    def _has_emptied(self, within_s: float) -> bool:
        """Wait until nothing is on its way. The listeners do not wait: it is they who are told."""
        return self._listeners.is_current or self._in_flight.wait_empty(within_s)

    def put_multi(self, values: Iterable[T], prefix: str, timeout_s: float | None) -> str | bool:
        """Store ``values`` in one znode whose name begins with ``prefix``; see the recipes'."""
        found = list(several("items", values, "values"))
        return self.put(found, prefix, timeout_s, is_multi=True)

    def put(
        self, values: Sequence[T], prefix: str, timeout_s: float | None, *, is_multi: bool = False
    ) -> str | bool:
        """As :meth:`put_multi`; unless ``is_multi``, there is one value."""
        deadline = Deadline.asked(timeout_s, None)
        one = None if self._options.put_in_background else PutResults()
        self.check_open()
        put = self.made(values, prefix, one, is_multi=is_multi)
        if not self._was_sent([put], one, deadline):
            return False
        if one is None:
            return True
        if self._waited(one, deadline):
            raise ConnectionLost(
                "the item was sent, and not answered in time: it may have been stored, or may"
                " still be"
            )
        if one.failures:
            raise one.failures[0][1]
        return put.made or one.stored > 0

    def put_many(
        self, values: Iterable[V], named: Callable[[V], tuple[T, str]], timeout_s: float | None
    ) -> int:
        """Store each of ``values`` in a znode of its own; returns how many were stored. ``named``
        returns what to store for a value, and under which prefix.

        :raises PutsFailed: some values were not stored; the outcome of all others was waited for.
        """
        deadline, values = Deadline.asked(timeout_s, None), several("items", values, "values")
        if self._options.put_in_background:
            return self._stream(values, named, None, deadline)
        many = PutResults()
        try:
            self._stream(values, named, many, deadline)
        except Exception:
            # of the iterable, or closed meanwhile: values already taken from it are seen through
            many.wait(deadline.left_s(primitives.TIMEOUT_MAX))
            raise
        if left := self._waited(many, deadline):
            lost = ConnectionLost(f"{left} items were sent, and not answered in time")
            many.fail(None, lost, left)
        return many.take()

    def _stream(
        self,
        values: Iterable[V],
        named: Callable[[V], tuple[T, str]],
        many: PutResults | None,
        deadline: Deadline,
    ) -> int:
        self.check_open()
        count = 0
        for some in batched(values, _CHUNK if isinstance(values, Sized) else 1):
            puts = []
            for value in some:
                try:
                    item, prefix = named(value)
                    puts.append(self.made([item], prefix, many))
                except Exception as exc:  # noqa: BLE001 - of the name or serializer: of this value
                    (many or self._unheard).fail(value, exc)
                    if many is None:
                        self._tell_of_failure(exc)
            if puts and not self._was_sent(puts, many, deadline):
                break
            count += len(puts)
        return count

    def _was_sent(
        self, puts: Sequence[Put], results: PutResults | None, deadline: Deadline
    ) -> bool:
        """Send these puts as soon as there is room; ``False`` if there was no room by ``deadline``.
        A listener that puts does not wait, because it is needed to make room.
        """
        room = len(puts), sum(put.size for put in puts)
        if not self._in_flight.acquire(*room, 0):
            if self._listeners.is_current:
                self._in_flight.take(*room)
            elif not self._in_flight.acquire(*room, deadline.remaining_s):
                return False
        if results is not None:
            results.expect(len(puts))
        self._sender.send(puts)
        return True

    def made(
        self,
        values: Sequence[T],
        prefix: str,
        waiter: PutResults | None = None,
        *,
        is_multi: bool = False,
    ) -> Put:
        """Return the put of these values, which is not sent yet. Raises ``TooLarge``, and whatever
        the serializer raises.
        """
        items = [unchanging(self._serialize(value)) for value in values]
        path, extra = self._paths.item(prefix), self.writer.chroot_bytes
        value = values if is_multi else values[0]
        trace = tracing.sent_item(self._paths.path) if self._is_framed else None
        for note in (payload.Note(trace=trace), None) if trace else (None,):
            compress = self._options.compress
            framed = self._is_framed
            content = payload.encode(items, note, compress=compress) if framed else items[0]
            put = Put(path, content, extra, self._on_puts, value, waiter, is_multi=is_multi)
            if put.size <= self._limit:
                return put
        what = f"a znode of {len(values)} items" if is_multi else "an item"
        raise TooLarge(what, size=put.size, limit=self._limit, path=self._paths.path)

    def _waited(self, many: PutResults, deadline: Deadline) -> int:
        """Wait until these are settled or withdrawn; returns how many were not answered."""
        if not many.wait(deadline.left_s(primitives.TIMEOUT_MAX)):
            return 0
        unsent = self._withdrawn(lambda put: put.waiter is many)
        self._in_flight.release(len(unsent), sum(put.size for put in unsent))
        many.forget(len(unsent))
        return many.wait(_ANSWER_S)

    def _withdrawn(self, wanted: Callable[[Put], bool]) -> list[OperationGroup]:
        return self._sender.withdraw_those(lambda group: isinstance(group, Put) and wanted(group))

    @property
    def unsettled(self) -> int:
        """How many znodes have no known outcome yet, or one that listeners were not told yet."""
        return self._in_flight.items

    def flush(self, timeout_s: float) -> bool:
        is_empty = self._in_flight.wait_empty(timeout_s)
        self._unheard.take()
        return is_empty

    def _settled(self, puts: list[Put], error: LeaderqError | None) -> None:
        """Pass on the outcome of puts. Called on the session's thread, or a writer's."""
        if error is None:
            self._figures.add("put", sum(len(put.value) if put.is_multi else 1 for put in puts))
            number = sequence_of(puts[-1].made or "")
            if not (0 <= number < WARN_FROM or self._has_warned):
                self._has_warned = True
                why = "item numbers run out soon, use a new path queue=%s number=%d"
                log.warning(why, self._paths.path, number)
        else:
            error = explained(error, self._paths)
            for put in puts:
                put.error = error
        if self._listeners:
            self._listeners.announce(*puts)
        else:
            self._told(puts)
        for waiter, some in groupby(puts, attrgetter("waiter")):
            if waiter is not None:  # last, because a waiting caller may flush at once
                waiter.on_outcome(list(some), error)

    def _told(self, puts: Sequence[Put]) -> None:
        """Make room after puts whose outcome the listeners, if there are any, know by now."""
        if not self._listeners and (unheard := [put for put in puts if put.waiter is None]):
            error = unheard[0].error
            self._unheard.on_outcome(unheard, error)
            if error is not None:
                self._tell_of_failure(error, len(unheard))
        self._in_flight.release(len(puts), sum(put.size for put in puts))

    def _tell_of_failure(self, error: BaseException, count: int = 1) -> None:
        phrase = "puts in the background failed queue=%s puts=%d error=%s"
        log.error(phrase, self._paths.path, count, error)
