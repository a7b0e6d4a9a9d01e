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
from contextlib import ExitStack

from leaderq.base.arguments import at_least, in_seconds, require, several
from leaderq.base.timeouts import Deadline
from leaderq.errors import (
    ConfigurationError,
    ConnectionLost,
    NotConnected,
    PutsFailed,
    QueueEmpty,
)
from leaderq.queues.admin import QueueAdmin
from leaderq.queues.consumers import QueueOptions
from leaderq.queues.consuming import Item
from leaderq.queues.consuming.items import Claim, done
from leaderq.queues.recipes import CuratorQueue
from leaderq.queues.wire.names import SIMPLE_PREFIX, QueueKind
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.zookeeper import AnyClient, SessionState

_ANSWER_S = 10.0
_GRACE_S = 1.0
"""Seconds beyond the caller's time for a request that was begun in time."""
_SLICE_S = 0.5


class SimpleDistributedQueue(CuratorQueue[bytes]):
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

    KIND = QueueKind.SIMPLE

    def __init__(
        self, client: AnyClient, path: str, *, claim_ahead: int = 0, meta_path: str | None = None
    ) -> None:
        if path == "/":
            raise ConfigurationError("path='/': give the queue a path of its own")
        options: QueueOptions[bytes] = QueueOptions(claim_ahead=claim_ahead)
        super().__init__(client, QueuePaths(path, meta_path=meta_path), options)

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
        items = list(several("items", items, "bytes"))
        for item in items:  # before any is sent
            self._putter.made([item], SIMPLE_PREFIX)
        self._check_open()
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
        is_now = timeout_s is None
        return self._take(
            max_items, 0.0 if is_now else timeout_s, _ANSWER_S if is_now else _GRACE_S
        )

    def take(self, timeout_s: float | None = None) -> bytes | None:
        """Take the item at the head; returns ``None`` if none comes within ``timeout_s`` seconds
        (``timeout_s=None``: wait for ever).
        """
        taken = self._take(1, timeout_s)
        return taken[0] if taken else None

    def take_item(self, timeout_s: float | None = None) -> Item[bytes] | None:
        """As :meth:`take`, but the caller can still release the item to its place, with
        ``give_back()``, or to the end, with ``requeue()``. ``ack()`` has nothing left to do.
        """
        deadline = Deadline.asked(timeout_s, None)
        self._begin_to_take(deadline)
        return self._consumption.take(deadline, self._check_open)

    def remove(self) -> bytes:
        """Take the item at the head.

        :raises QueueEmpty: there is none.
        """
        return self._found(self.poll())

    def peek(self) -> bytes | None:
        """The item at the head, or ``None``; it stays there, and somebody else may take it."""
        self._check_open()
        claimed = self._consumption.engine.ready.first
        if claimed is not None:
            return claimed.data
        for item in QueueAdmin(self._session, self._paths, self.KIND).browse(1):
            return item.data
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
        within_s = in_seconds("timeout_s", timeout_s)
        return self._close(within_s, within_s)

    def _take(self, wanted: int, timeout_s: float | None, grace_s: float = _GRACE_S) -> list[bytes]:
        """Take up to ``wanted`` items, as soon as there is one; returns none if the queue is known
        to be empty.

        :raises ConnectionLost: nothing was known in time or, while the connection stands,
            ``grace_s`` seconds later.
        """
        deadline = Deadline.asked(timeout_s, None)
        last = Deadline(None if timeout_s is None else timeout_s + grace_s)
        self._check_open()
        self._begin_to_take(deadline)
        engine = self._consumption.engine
        ready, ask = engine.ready, engine.ready.ask()
        got: list[Claim] = []
        with ExitStack() as on_error:  # an interruption must not take items with it
            on_error.callback(ready.put, got)
            while not got:
                self._check_open()
                is_known, is_late = ready.answered >= ask, deadline.is_over
                if is_late and is_known:
                    break
                is_connected = self._session.state is SessionState.CONNECTED
                if is_late and (last.is_over or not is_connected):
                    late = f"no answer in time; items of {self.path} go to the next take"
                    raise ConnectionLost(late)
                patience_s = (last if is_late else deadline).left_s(_SLICE_S)
                got += ready.take(wanted, patience_s, wants=wanted, ask=None if is_known else ask)
            on_error.pop_all()
        engine.settle([done(claim) for claim in got])
        return [claim.data for claim in got]
