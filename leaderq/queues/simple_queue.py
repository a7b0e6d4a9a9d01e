r"""Curator's ``SimpleDistributedQueue`` on the same znodes: ``qn-``\ n, raw bytes, no frame; offer
at one end, take at the other.

Offers go the way of all puts (:mod:`leaderq.queues.putting`), and items are taken by the engine
that all queues share (:mod:`leaderq.queues.consuming.engine`); each begins at its first use. So
each offer and each claim is applied exactly once, whatever happens to its answer. On each failure:

* **the caller's time is up while a claim is under way**: an item whose claim is found to have
  succeeded later goes to the next who asks, and back to its old place if nobody does before
  :meth:`SimpleDistributedQueue.close`;
* **queue path deleted, or reaped as a container** (CURATOR-308), at any moment: an offer makes it
  again. Whoever waits goes on waiting;
* **the process is killed**: what it has claimed and not yet seen is lost, as with Curator: one
  call's worth per thread, and what was claimed ahead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import suppress

from leaderq.clock import now_s
from leaderq.errors import (
    ConfigurationError,
    ConnectionLost,
    NoNode,
    NotConnected,
    PutsFailed,
    QueueClosed,
    QueueEmpty,
    SessionClosed,
    SessionExpired,
)
from leaderq.queues.consumers import QueueOptions
from leaderq.queues.consuming import Consumption, Item
from leaderq.queues.consuming.claims import Claim
from leaderq.queues.consuming.settling import done
from leaderq.queues.putting import Putter
from leaderq.queues.wire.names import SIMPLE_PREFIX, QueueKind, is_item, sequence_of
from leaderq.queues.wire.znodes import QueuePaths, explaining_refusals
from leaderq.zookeeper import AnyClient, SessionState, as_session

CLOSE_TIMEOUT_S = 5.0
_ANSWER_S = 10.0
_GRACE_S = 1.0
"""What a request that was begun in time is given beyond the caller's time."""
_SLICE_S = 0.5


class SimpleDistributedQueue:
    """A queue of bytes in ZooKeeper that a Java ``SimpleDistributedQueue`` may share. Thread-safe;
    needs no start.

    ``claim_ahead``: that many items more than asked for are claimed at once, if they are there, and
    given to the next callers of this object without a request; at ``close`` the rest goes back to
    its old place. Many times faster for one who takes item after item, but a process that is killed
    takes them with it, and nobody else gets them meanwhile.

    ``meta_path``: where the guards of its writes are kept, by default at ``<path>-meta``.

    *Guarantees:* an item offered without an error is stored once, in the order of the calls; an
    item is given to one caller only, of all processes and languages. A lone taker gets items in the
    order they were offered. ``None`` or :class:`~leaderq.errors.QueueEmpty` mean that the server
    asked knew of no item. *Not guaranteed:* an item taken is gone, whatever becomes of its taker
    (take items that must not be lost with a lock path: ``DistributedQueue``). Several takers do not
    keep the order among themselves.

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
            raise ConfigurationError("a queue needs a path of its own; '/' is no place for one")
        self._putter = Putter(self._session, self._paths, options, is_framed=False)
        self._consumption = Consumption(self._session, self._paths, QueueKind.SIMPLE, options)
        self._lock = threading.Lock()
        self._is_closed = False

    def __enter__(self) -> SimpleDistributedQueue:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SimpleDistributedQueue({self.path!r})"

    def start(self) -> None:
        """Nothing: it begins at its first use. For who starts queues of all kinds."""

    def offer(self, data: bytes, timeout_s: float | None = None) -> None:
        """Put an item at the end. Returns when it is stored; ``timeout_s=None`` waits for that
        through any outage.

        :raises TooLarge: more than the server accepts; nothing was sent.
        :raises NotConnected: the time passed, and it was not sent, nor will be.
        :raises ConnectionLost: it was sent in time, and not answered within another second: it may
            be stored, or yet will be.
        """
        self.offer_many([data], timeout_s)

    def offer_many(self, items: Iterable[bytes], timeout_s: float | None = None) -> None:
        """Put items at the end, each for itself, in this order, in as few requests as they fit in;
        else as :meth:`offer`.

        An error is that of the first item that it befell: those before it are stored, those behind
        it may be.
        """
        deadline = _deadline(timeout_s)
        items = list(items)
        for item in items:  # before any is sent
            self._putter.made([item], SIMPLE_PREFIX)
        try:
            self._until(deadline, self._putter.start)
        except (ConnectionLost, NoNode, SessionExpired) as exc:
            why = f"no connection in the time given; nothing was sent to {self.path}"
            raise NotConnected(why, path=self.path) from exc
        try:
            left_s = None if timeout_s is None else max(0.0, deadline - now_s())
            stored = self._putter.put_many(items, lambda item: (item, SIMPLE_PREFIX), left_s)
        except PutsFailed as exc:
            raise exc.failures[0][1] from None
        if stored < len(items):
            why = f"what is left of the offer to {self.path} was not sent in time, nor will be"
            raise NotConnected(why, path=self.path)

    def poll(self, timeout_s: float | None = None) -> bytes | None:
        """Take the item at the head, or ``None``; wait for one ``timeout_s`` (``None``: not)."""
        taken = self.poll_many(1, timeout_s)
        return taken[0] if taken else None

    def poll_many(self, max_items: int, timeout_s: float | None = None) -> list[bytes]:
        """As :meth:`poll`, up to ``max_items`` at once, in one write; waits for the first only."""
        if max_items < 1:
            raise ConfigurationError(f"max_items={max_items!r}: give 1 or more")
        if timeout_s is None:
            return self._take(max_items, now_s(), grace_s=_ANSWER_S)
        return self._take(max_items, _deadline(timeout_s))

    def take(self, timeout_s: float | None = None) -> bytes | None:
        """Take the item at the head, or ``None`` after ``timeout_s`` (``None``: wait for ever)."""
        taken = self._take(1, _deadline(timeout_s))
        return taken[0] if taken else None

    def take_item(self, timeout_s: float | None = None) -> Item[bytes] | None:
        """As :meth:`take`, but whoever takes it can still give it back to its place, with
        ``give_back()``, or to the end, with ``requeue()``. ``ack()`` has nothing left to do.
        """
        self._begin(_deadline(timeout_s))
        return self._consumption.take(timeout_s)

    def remove(self) -> bytes:
        """Take the item at the head.

        :raises QueueEmpty: there is none.
        """
        item = self.poll()
        if item is None:
            raise QueueEmpty(f"queue {self.path} has no item to remove")
        return item

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
        item = self.peek()
        if item is None:
            raise QueueEmpty(f"queue {self.path} has no item to show")
        return item

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """Let go of the queue; returns whether everything was settled in ``timeout_s``. May be
        called again.

        Callers that wait in other threads get :class:`~leaderq.errors.QueueClosed`, or their item
        if its claim was under way.
        """
        with self._lock:
            if self._is_closed:
                return True
            self._is_closed = True
        deadline = now_s() + timeout_s
        is_clean = self._consumption.close(timeout_s)
        self._putter.close(max(0.1, deadline - now_s()))
        if not self._is_lent:
            self._session.close()
        return is_clean and not self._putter.unsettled

    def _guard(self) -> None:
        if self._is_closed:
            raise QueueClosed(f"queue {self.path} was closed")
        if self._session.state is SessionState.CLOSED:
            raise SessionClosed("the session was closed by its owner", path=self.path)

    def _until(self, deadline: float, begin: Callable[[float], object]) -> None:
        """Begin, tried again until there is a connection; ``begin`` is told how long it may wait.

        :raises ConnectionLost: there was none by ``deadline``.
        """
        while True:
            self._guard()
            try:
                with explaining_refusals(self._paths):
                    begin(max(0.0, min(deadline - now_s(), _SLICE_S)))
                return
            except (ConnectionLost, SessionExpired, NoNode):
                # NoNode: its parent was taken away that very moment
                if now_s() >= deadline:
                    raise

    def _begin(self, deadline: float) -> None:
        """Begin to take, if that was not done."""
        self._until(deadline, self._consumption.start)

    def _take(self, wanted: int, deadline: float, grace_s: float = _GRACE_S) -> list[bytes]:
        """Up to ``wanted`` items, as soon as there is one; none if it is known that there was none.

        :raises ConnectionLost: nothing is known by ``deadline``, and ``grace_s`` more while the
            connection stands.
        """
        self._begin(deadline)
        engine = self._consumption.engine
        ready = engine.ready
        ask: int | None = ready.ask()
        got: list[Claim] = []
        is_late = False
        try:
            while not got or (len(got) < wanted and engine.is_claiming and not ready.is_closed):
                if not got:
                    self._guard()
                if ask is not None and ready.answered >= ask:
                    ask = None
                left_s = deadline - now_s()
                if left_s <= 0 and ask is None:
                    break
                is_connected = self._session.state is SessionState.CONNECTED
                if left_s <= 0 and (left_s + grace_s <= 0 or not is_connected):
                    is_late = not got
                    break
                patience_s = min(_SLICE_S, left_s if left_s > 0 else left_s + grace_s)
                more = wanted - len(got)
                got += ready.take(more, patience_s, wants=more, ask=ask)
        except BaseException:  # an interruption must not take items with it
            ready.put(got)
            raise
        if is_late:
            raise ConnectionLost(
                f"no answer in time; items of {self.path} claimed late go to the next take"
            )
        engine.settle([done(claim) for claim in got])
        return [claim.data for claim in got]


def _deadline(timeout_s: float | None) -> float:
    return float("inf") if timeout_s is None else now_s() + timeout_s
