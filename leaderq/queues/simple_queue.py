r"""Curator's ``SimpleDistributedQueue`` on the same znodes: ``qn-``\ n, raw bytes, no frame; offer
at one end, take at the other.

Offers are puts as in all queues (:mod:`leaderq.queues.putting`), and the engine of all queues
(:mod:`leaderq.queues.consuming.engine`) takes items; both begin at their first use. So each offer
and each claim is applied exactly once, whatever happens to its answer. On each failure:

* **the caller's time is up while a claim is under way**: if the claim turns out to have succeeded,
  its item goes to the next caller that asks, or back to its old place if nobody asks before
  :meth:`SimpleDistributedQueue.close`;
* **queue path deleted, or reaped as a container** (CURATOR-308), at any moment: the next offer
  makes the path again. Callers that wait go on waiting;
* **the process is killed**: items that it had claimed and not yet returned are lost, as with
  Curator: those of one call per thread, and those claimed ahead.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack, suppress

from leaderq.base import clock
from leaderq.base.arguments import at_least, require, timeout
from leaderq.errors import (
    ConfigurationError,
    ConnectionLost,
    NoNode,
    NotConnected,
    PutsFailed,
    QueueClosed,
    QueueEmpty,
)
from leaderq.queues.consumers import QueueOptions
from leaderq.queues.consuming import Consumption, Item
from leaderq.queues.consuming.items import Claim, done
from leaderq.queues.putting import Putter
from leaderq.queues.wire.names import SIMPLE_PREFIX, QueueKind, is_item, sequence_of
from leaderq.queues.wire.znodes import QueuePaths, explaining_refusals
from leaderq.threads import primitives
from leaderq.zookeeper import AnyClient, SessionState, as_session
from leaderq.zookeeper.retrying import retry_until_connected

_ANSWER_S = 10.0
_GRACE_S = 1.0
"""Seconds beyond the caller's time for a request that was begun in time."""
_SLICE_S = 0.5


class SimpleDistributedQueue:
    """A queue of bytes in ZooKeeper that a Java ``SimpleDistributedQueue`` may share. Thread-safe;
    needs no start.

    ``claim_ahead``: up to that many items more than asked for are claimed at once, and returned to
    the next callers of this object without a request; at ``close`` the rest goes back to its old
    place. This is many times faster for a process that takes item after item. But nobody else gets
    these items meanwhile, and they are lost if the process is killed. ``meta_path``: where the
    guards of its writes are kept, by default at ``<path>-meta``.

    *Guarantees:* an item offered without an error is stored once, in the order of the calls; an
    item is given to one caller only, of all processes and languages. A lone taker gets items in the
    order they were offered. ``None`` or :class:`~leaderq.errors.QueueEmpty` mean that the server
    asked knew of no item. *Not guaranteed:* that an item is not lost with its taker (use a
    ``DistributedQueue`` with a lock path); an order among several takers.

    All methods but ``close`` raise :class:`~leaderq.errors.QueueClosed` after ``close``,
    ``SessionClosed`` after the session's end by its owner, and
    :class:`~leaderq.errors.ConnectionLost` if no answer came in the time given.
    """

    def __init__(
        self, client: AnyClient, path: str, *, claim_ahead: int = 0, meta_path: str | None = None
    ) -> None:
        options: QueueOptions[bytes] = QueueOptions(claim_ahead=claim_ahead)
        self._session = as_session(client)
        self._is_lent = self._session is client
        self.path = path
        self._paths = QueuePaths(path, meta_path=meta_path)
        if path == "/":
            raise ConfigurationError("path='/': give the queue a path of its own")
        self._putter = Putter(self._session, self._paths, options, is_framed=False)
        self._consumption = Consumption(self._session, self._paths, QueueKind.SIMPLE, options)
        self._lock = primitives.Lock()
        self._is_closed = False

    def __enter__(self) -> SimpleDistributedQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SimpleDistributedQueue({self.path!r})"

    def start(self) -> None:
        """Does nothing: the queue begins at its first use."""

    def offer(self, data: bytes, timeout_s: float | None = None) -> None:
        """Put an item at the end. Returns when it is stored; ``timeout_s=None`` waits for that
        through any outage.

        :raises TooLarge: the item is larger than the server accepts; nothing was sent.
        :raises NotConnected: the time passed; the item was not sent, and will not be sent.
        :raises ConnectionLost: the item was sent in time, but there was no answer within another
            second: it may be stored.
        """
        self.offer_many([data], timeout_s)

    def offer_many(self, items: Iterable[bytes], timeout_s: float | None = None) -> None:
        """Put items at the end, one znode each, in this order, in as few requests as possible;
        otherwise as :meth:`offer`. The error raised is that of the first item that failed: items
        before it are stored, items after it may be.
        """
        items = list(items)
        for item in items:  # before any is sent
            self._putter.made([item], SIMPLE_PREFIX)
        self._guard()
        try:
            stored = self._putter.put_many(items, lambda item: (item, SIMPLE_PREFIX), timeout_s)
        except PutsFailed as exc:
            raise exc.failures[0][1] from None
        if stored < len(items):
            why = f"what is left of the offer to {self.path} was not sent in time, nor will be"
            raise NotConnected(why, path=self.path)

    def poll(self, timeout_s: float | None = None) -> bytes | None:
        """Take the item at the head; returns ``None`` if none comes within ``timeout_s`` seconds
        (``timeout_s=None``: do not wait).
        """
        taken = self.poll_many(1, timeout_s)
        return taken[0] if taken else None

    def poll_many(self, max_items: int, timeout_s: float | None = None) -> list[bytes]:
        """As :meth:`poll`, for up to ``max_items`` in one write; waits only for the first item."""
        require(at_least("max_items", max_items, 1))
        if timeout_s is None:
            return self._take(max_items, clock.now_s(), grace_s=_ANSWER_S)
        return self._take(max_items, _deadline(timeout_s))

    def take(self, timeout_s: float | None = None) -> bytes | None:
        """Take the item at the head; returns ``None`` if none comes within ``timeout_s`` seconds
        (``timeout_s=None``: wait for ever).
        """
        taken = self._take(1, _deadline(timeout_s))
        return taken[0] if taken else None

    def take_item(self, timeout_s: float | None = None) -> Item[bytes] | None:
        """As :meth:`take`, but the caller can still release the item to its place, with
        ``give_back()``, or to the end, with ``requeue()``. ``ack()`` has nothing left to do.
        """
        self._begin(_deadline(timeout_s))
        return self._consumption.take(timeout_s)

    def remove(self) -> bytes:
        """Take the item at the head.

        :raises QueueEmpty: there is none.
        """
        return self._found(self.poll())

    def peek(self) -> bytes | None:
        """The item at the head, or ``None``; it stays there, and somebody else may take it."""
        self._guard()
        claimed = self._consumption.engine.ready.first
        if claimed is not None:
            return claimed.data
        try:
            names = self._session.children(self.path)
        except NoNode:
            return None
        items = (name for name in names if is_item(QueueKind.SIMPLE, name))
        for name in sorted(items, key=sequence_of):
            with suppress(NoNode):
                return self._session.get(self._paths.item(name))[0]
        return None

    def element(self) -> bytes:
        """As :meth:`peek`.

        :raises QueueEmpty: there is none.
        """
        return self._found(self.peek())

    def _found(self, item: bytes | None) -> bytes:
        if item is None:
            raise QueueEmpty(f"queue {self.path} has no item")
        return item

    def close(self, timeout_s: float = 5.0) -> bool:
        """Close the queue; returns whether everything was settled in ``timeout_s``. May be
        called again.

        Callers that wait in other threads get :class:`~leaderq.errors.QueueClosed`, or their item
        if its claim was under way.
        """
        with self._lock:
            if self._is_closed:
                return True
            self._is_closed = True
        deadline = clock.now_s() + timeout_s
        is_clean = self._consumption.close(timeout_s)
        self._putter.close(max(0.1, deadline - clock.now_s()))
        if not self._is_lent:
            self._session.close()
        return is_clean and not self._putter.unsettled

    def _guard(self) -> None:
        if self._is_closed:
            raise QueueClosed(f"queue {self.path} was closed")
        self._session.check_open(self.path)

    def _begin(self, deadline: float) -> None:
        """Begin to take items; tries again until there is a connection.

        :raises ConnectionLost: there was no connection by ``deadline``.
        """
        with explaining_refusals(self._paths):
            start = self._consumption.start
            retry_until_connected(self._session, start, deadline - clock.now_s(), check=self._guard)

    def _take(self, wanted: int, deadline: float, grace_s: float = _GRACE_S) -> list[bytes]:
        """Take up to ``wanted`` items, as soon as there is one; returns none if the queue is known
        to be empty.

        :raises ConnectionLost: nothing was known by ``deadline`` or, while the connection stands,
            ``grace_s`` seconds later.
        """
        self._begin(deadline)
        engine = self._consumption.engine
        ready, ask = engine.ready, engine.ready.ask()
        got: list[Claim] = []
        with ExitStack() as on_error:  # an interruption must not take items with it
            on_error.callback(ready.put, got)
            while not got:
                self._guard()
                is_known, left_s = ready.answered >= ask, deadline - clock.now_s()
                if left_s <= 0 and is_known:
                    break
                is_connected = self._session.state is SessionState.CONNECTED
                if left_s <= 0 and (left_s + grace_s <= 0 or not is_connected):
                    late = f"no answer in time; items of {self.path} go to the next take"
                    raise ConnectionLost(late)
                patience_s = min(_SLICE_S, left_s if left_s > 0 else left_s + grace_s)
                got += ready.take(wanted, patience_s, wants=wanted, ask=None if is_known else ask)
            on_error.pop_all()
        engine.settle([done(claim) for claim in got])
        return [claim.data for claim in got]


def _deadline(timeout_s: float | None) -> float:
    require(timeout("timeout_s", timeout_s))
    return float("inf") if timeout_s is None else clock.now_s() + timeout_s
