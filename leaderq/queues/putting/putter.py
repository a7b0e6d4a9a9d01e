"""The way of an item into a queue: serialised, framed, sent in batches, stored exactly once, and its fate told.

Who is authoritative: the producer's tally (see :mod:`leaderq.queues.tallying`) about what was stored; this class says so to the caller,
the listeners, :meth:`Putter.flush` and :meth:`Putter.close`.

States: *new*, *started* by :meth:`Putter.start`, *closed* by :meth:`Putter.close`. Before and after, a put raises ``QueueClosed``.

What happens on each failure:

* **the serializer raises, or the item is too large**: the put raises it, at the call, and nothing is counted;
* **a reply or the connection is lost**: the put goes on waiting; the item is stored once, in its place, when the servers are back;
* **time is up** (``timeout_s``): what was certainly not sent is given up, and the put gives ``False``. What was sent cannot be taken
  back: the put waits for the answer for a second more, and then raises ``ConnectionLost``; listeners hear of the outcome later;
* **a bounded queue is full**: the put waits for room, without polling or listing;
* **a put in the background fails**: listeners hear of it; if there are none it is logged, and raised by the next flush or the close;
* **too much is on its way**: further puts wait (8192 znodes, 48 MiB), so memory stays bounded while the servers are away;
* **close**: a put that somebody waits for, and that cannot be sent at once, raises ``QueueClosed``; those in the background are given
  ``final_flush_s``, and fail then. It never hangs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Sequence, Sized
from itertools import islice
from typing import Any, Generic, TypeVar
from uuid import uuid4

from leaderq.clock import now_s
from leaderq.errors import ConfigurationError, ConnectionLost, LeaderqError, PutsFailed, QueueClosed, TooLarge
from leaderq.queues.places import Places
from leaderq.queues.putting.backlog import Backlog
from leaderq.queues.putting.bounding import Bounding
from leaderq.queues.putting.lingering import Lingering
from leaderq.queues.putting.put import KEPT_FAILURES, Many, One, Put, Waiter
from leaderq.queues.putting.sequences import Sequences
from leaderq.queues.putting.telling import PutListener, Teller
from leaderq.queues.putting.ways import Straight, Way
from leaderq.queues.serializers import BYTES, QueueSerializer, bytes_as_they_are, unchanging
from leaderq.queues.tallying import Tally
from leaderq.queues.tallying.sweeping import sweep
from leaderq.queues.wire import payload
from leaderq.zookeeper import Session, SessionState
from leaderq.zookeeper.paths import join, validated_path

log = logging.getLogger(__name__)
T = TypeVar("T")

_GUARD_BYTES = 1024
"""Bytes of a request left to the guard of a bounded queue."""
_MULTI_BYTES = 768 * 1024
_WINDOW = 40
"""Multis under way. While the server forces some to its disk it must have others at hand, or it stands still between an answer and the
next request, and the more it finds the more it forces at a time (large znodes: 65 times with 16 multis under way, 40 times with 40)."""
_START_S = 15.0
_CLOSE_S = 2.0
_ANSWER_S = 1.0
"""What was sent when its time is up gets so long to be answered: only the answer tells."""
_LOOK_S = 0.02
_GRACE_S = 0.25
"""Puts that somebody waits for fail if they are not sent so soon after the close: for want of room, or of a connection."""
_CHUNK = 256
_ENOUGH = 500


class Putter(Generic[T]):
    """See the module. May be used from any thread, except from callbacks of the session.

    *Guarantees:* what :meth:`put` gives ``True`` for in the foreground is stored, once. Items put by one thread are stored in that
    order, whatever happens to the connection, except those that failed.
    *Not guaranteed:* an order among several threads or producers.
    """

    def __init__(
        self,
        session: Session,
        places: Places,
        serializer: QueueSerializer[T],
        *,
        max_items: int | None = None,
        put_in_background: bool = False,
        final_flush_s: float = 5.0,
        compress: bool = False,
        linger_s: float = 0.0,
        name: str | None = None,
    ) -> None:
        _check(max_items=max_items, final_flush_s=final_flush_s, linger_s=linger_s)
        self.put_in_background = put_in_background
        self._session = session
        self._places = places
        self._serialize = bytes_as_they_are if serializer is BYTES else serializer.serialize
        self._max_items = max_items
        self._final_flush_s = final_flush_s
        self._compress = compress
        self._linger_s = linger_s
        self._name = name or places.path.rpartition("/")[2]
        self.tally = Tally(session, join(places.tallies, f"put-{uuid4().hex}"), max_bytes=_MULTI_BYTES, window=_WINDOW)
        """What all writes of this producer go through."""
        self._parent = validated_path(places.path).rstrip("/") + "/"
        self._extra_bytes = len(session.chroot.encode())
        self._limit = self.tally.limit - _GUARD_BYTES
        self._backlog = Backlog()
        self._teller = Teller(self._name)
        self._sequences = Sequences(places.path)
        self._lock = threading.Lock()
        self._way: Way | None = None
        self._is_closed = False
        self._unheard: list[tuple[Any, BaseException]] = []  # failures in the background that no listener was told of
        self._unheard_count = 0
        self._since = 0
        self._over = self._settled  # one object for all puts
        self._last_path = ("", "")

    # -- its life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Make the queue's znodes and the tally; may be called again.

        :raises ConnectionLost: the servers did not answer within some 15 s.
        """
        with self._lock:
            if self._way is not None or self._is_closed:
                return
            self._persevere()
            way: Way = Straight(self.tally)
            if self._max_items is not None:
                way = Bounding(self.tally, self._session, self._places, self._max_items, name=self._name)
            elif self._linger_s > 0:
                way = Lingering(way, self._linger_s, enough=_ENOUGH, name=self._name)
            self._way = way
        sweep(self._session, self._places.tallies)

    def _persevere(self) -> None:
        """All of it may be repeated, so lost replies are no reason to give up."""
        deadline = now_s() + _START_S
        while True:
            try:
                self._session.ensure_path(self._places.path)
                if self._places.lock_path is not None:
                    self._session.ensure_path(self._places.lock_path)
                self.tally.open()
                return
            except ConnectionLost:
                if now_s() >= deadline or self._session.state is SessionState.CLOSED:
                    raise
            threading.Event().wait(0.05)

    def close(self) -> None:
        """Wait ``final_flush_s`` at most for what is on its way, and take the tally away; may be called again.

        :raises PutsFailed: puts in the background failed, now or earlier, and nobody has been told.
        """
        with self._lock:
            is_first, self._is_closed = not self._is_closed, True
            way = self._way
        if not is_first:
            return
        self._backlog.close()
        if way is None:
            return
        deadline = now_s() + self._final_flush_s
        self._backlog.wait_empty(min(_GRACE_S, self._final_flush_s))
        for put in way.withdraw_those(lambda put: isinstance(put, Put) and put.waiter is not None):
            put.settle(error=QueueClosed("the queue was closed before this was sent"))
        way.hurry()
        if not self._backlog.wait_empty(self._final_flush_s):
            log.warning("queue %s: %d puts were not settled when it was closed", self._places.path, self._backlog.items)
        way.close()
        self.tally.close(max(0.0, deadline - now_s()))
        self._backlog.wait_empty(_CLOSE_S)
        self._teller.stop(_CLOSE_S)
        self._raise_unheard()

    # -- putting --------------------------------------------------------------------------------------------------------

    def put(self, value: T, prefix: str, *, timeout_s: float | None = None, background: bool | None = None) -> bool:
        """Store ``value`` in a znode whose name begins with ``prefix``; see the recipes' ``put``."""
        return self._put_one([value], prefix, is_multi=False, timeout_s=timeout_s, background=background)

    def put_multi(
        self, values: Iterable[T], prefix: str, *, timeout_s: float | None = None, background: bool | None = None
    ) -> bool:
        """Store all of these in one znode."""
        return self._put_one(list(values), prefix, is_multi=True, timeout_s=timeout_s, background=background)

    def put_many(self, values: Iterable[T], prefix: str, *, timeout_s: float | None = None) -> int:
        """Store each value in a znode of its own; gives how many were.

        :raises PutsFailed: some were not; all others were seen through.
        """
        chunk = _CHUNK if isinstance(values, Sized) else 1
        return self.put_pairs(((value, prefix) for value in values), timeout_s=timeout_s, chunk=chunk)

    def put_pairs(self, pairs: Iterable[tuple[T, str]], *, timeout_s: float | None = None, chunk: int = 1) -> int:
        """As :meth:`put_many`, each with the beginning of its name; they are sent in chunks, so 1 is for those that are long in coming."""
        deadline = None if timeout_s is None else now_s() + timeout_s
        if self.put_in_background:
            return self._stream(pairs, chunk, None, deadline)
        many = Many()
        try:
            self._stream(pairs, chunk, many, deadline)
        except Exception:  # of the iterable, or closed meanwhile: what was taken from it is seen through
            many.wait(None if deadline is None else max(0.0, deadline - now_s()))
            raise
        except BaseException:  # Ctrl-C
            self._give_up(many)
            raise
        left = many.wait(None if deadline is None else max(0.0, deadline - now_s()))
        last = now_s() + _ANSWER_S
        while left and now_s() < last:
            many.forget(self._give_up(many))
            left = many.wait(_LOOK_S)
        if left or many.failed:
            unknown = [(None, ConnectionLost(f"{left} items were sent, and not answered in time"))] if left else []
            raise PutsFailed(stored=many.stored, failed=many.failed + left, failures=[*many.failures, *unknown])
        return many.stored

    def _put_one(
        self, values: Sequence[T], prefix: str, *, is_multi: bool, timeout_s: float | None, background: bool | None
    ) -> bool:
        way = self._open_way()
        deadline = None if timeout_s is None else now_s() + timeout_s
        one = None if (self.put_in_background if background is None else background) else One()
        put = self._made(values, prefix, one, is_multi=is_multi)
        if not self._backlog.enter(1, put.size, deadline, at_once=self._teller.is_here):
            return False
        way.send([put])
        return True if one is None else self._waited(way, put, one, deadline)

    def _waited(self, way: Way, put: Put, one: One, deadline: float | None) -> bool:
        try:
            is_over = one.event.wait(None if deadline is None else max(0.0, deadline - now_s()))
        except BaseException:  # Ctrl-C: nobody will know whether it was stored, so rather not
            self._withdrawn(way, put)
            raise
        last = now_s() + _ANSWER_S
        while not is_over:
            if self._withdrawn(way, put):
                return False
            is_over = one.event.wait(_LOOK_S)
            if not is_over and now_s() >= last:
                raise ConnectionLost("the item was sent, and not answered in time: it may have been stored, or may still be")
        if one.error is not None:
            raise one.error
        return True

    def _withdrawn(self, way: Way, put: Put) -> bool:
        if not way.withdraw(put):
            return False
        self._backlog.leave(1, put.size)
        return True

    def _give_up(self, many: Many) -> int:
        way = self._way
        puts = way.withdraw_those(lambda put: isinstance(put, Put) and put.waiter is many) if way is not None else []
        for put in puts:
            self._backlog.leave(1, put.size)
        return len(puts)

    def _stream(self, values: Iterable[tuple[T, str]], chunk: int, many: Many | None, deadline: float | None) -> int:
        """Send them as they come; gives how many were."""
        way = self._open_way()
        source = iter(values)
        count = 0
        while pairs := list(islice(source, chunk)):
            puts = [put for value, prefix in pairs if (put := self._streamed(value, prefix, many)) is not None]
            size = sum(put.size for put in puts)
            if puts:
                if not self._backlog.enter(len(puts), size, deadline, at_once=self._teller.is_here):
                    break
                if many is not None:
                    many.expect(len(puts))
                way.send(puts)
                count += len(puts)
        return count

    def _streamed(self, value: T, prefix: str, many: Many | None) -> Put | None:
        try:
            return self._made([value], prefix, many, is_multi=False)
        except Exception as exc:  # noqa: BLE001 - the user's serializer: it fails this value, which is told, and no other
            if many is None:
                self._note_unheard(value, exc)
            else:
                many.fail(value, exc)
            return None

    def _made(self, values: Sequence[T], prefix: str, waiter: Waiter | None, *, is_multi: bool) -> Put:
        items = map(unchanging, map(self._serialize, values))
        content = payload.encode(items, compress=self._compress)
        value = values if is_multi else values[0]
        put = Put(self._path(prefix), content, self._extra_bytes, self._over, value, is_multi=is_multi, waiter=waiter)
        if put.size > self._limit:
            what = f"a znode of {len(values)} items" if is_multi else "an item"
            raise TooLarge(what, size=put.size, limit=self._limit, path=self._places.path)
        return put

    def _path(self, prefix: str) -> str:
        """One string for all puts under one prefix."""
        last, path = self._last_path
        if last != prefix:
            path = self._parent + prefix
            self._last_path = (prefix, path)
        return path

    def _open_way(self) -> Way:
        way = self._way
        if way is None or self._is_closed:
            raise QueueClosed("the queue is closed" if self._is_closed else "the queue was not started; call start()")
        return way

    # -- outcomes -------------------------------------------------------------------------------------------------------

    def add_listener(self, listener: PutListener) -> None:
        """See :class:`~leaderq.queues.putting.telling.PutListener`."""
        self._teller.add(listener)

    def remove_listener(self, listener: PutListener) -> None:
        """Undo :meth:`add_listener`."""
        self._teller.remove(listener)

    @property
    def unsettled(self) -> int:
        """Znodes on their way whose outcome is not known yet, or not told."""
        return self._backlog.items

    def flush(self, timeout_s: float) -> bool:
        """Wait until all that was put is settled, and listeners have heard; whether that came in ``timeout_s``.

        :raises PutsFailed: puts in the background have failed since the last time, and no listener was told.
        """
        way = self._way
        if way is not None:
            way.hurry()
        is_empty = self._backlog.wait_empty(timeout_s)
        self._raise_unheard()
        return is_empty

    def _settled(self, put: Put, results: list[Any] | None, error: LeaderqError | None) -> None:
        """On the session's thread, or a tally's."""
        if error is None and results:
            self._sequences.saw(results[0])
        if self._teller.listeners:
            self._teller.tell(lambda listener: _tell(listener, put, error), lambda: self._backlog.leave(1, put.size))
        else:
            if put.waiter is None:
                self._note(put, error)
            self._backlog.leave(1, put.size)
        if put.waiter is not None:  # last: who waited may ask for a flush at once
            put.waiter.heard(put, error)

    def _note(self, put: Put, error: LeaderqError | None) -> None:
        if error is None:
            self._since += 1
        else:
            self._note_unheard(put.value, error)

    def _note_unheard(self, value: Any, error: BaseException) -> None:
        log.error("queue %s: an item put in the background was not stored: %s", self._places.path, error)
        with self._lock:
            self._unheard_count += 1
            if len(self._unheard) < KEPT_FAILURES:
                self._unheard.append((value, error))

    def _raise_unheard(self) -> None:
        with self._lock:
            failures, self._unheard = self._unheard, []
            failed, self._unheard_count = self._unheard_count, 0
            stored, self._since = self._since, 0
        if failed:
            raise PutsFailed(stored=stored, failed=failed, failures=failures)


def _tell(listener: PutListener, put: Put, error: LeaderqError | None) -> None:
    if error is not None:
        listener.put_failed(put.values, error)
    elif put.is_multi:
        listener.put_multi_completed(put.values)
    else:
        listener.put_completed(put.value)


def _check(*, max_items: int | None, final_flush_s: float, linger_s: float) -> None:
    problems = []
    if max_items is not None and max_items < 1:
        problems.append(f"max_items={max_items!r}: give 1 or more, or None for no bound")
    for name, value in (("final_flush_s", final_flush_s), ("linger_s", linger_s)):
        if value < 0:
            problems.append(f"{name}={value!r}: give 0 or more seconds")
    if problems:
        raise ConfigurationError(*problems)
