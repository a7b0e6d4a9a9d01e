"""An inbox: any thread puts items in, one thread takes them out in the same order, and only so many
may wait.

The *permits* are authoritative, one for each free place, in a list whose ``pop`` and ``append`` are
atomic. A producer takes a permit before it puts an item; the taker returns the permit after it has
taken the item out. So putting takes no lock while there is room. Everything else is decided under
``_lock``.

States: new (no permits) -> open <-> occupied (somebody waits; newcomers find no permits) -> closed.

As soon as the taker has taken an item out, it puts the item of the producer that waits longest. No
wake-up is lost: a producer joins the line before it looks for a permit, and the taker returns a
permit before it looks for waiting producers. No item is lost either: a thread that had its permit
before the inbox was closed finds ``has_ended`` after its put.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any, Generic, TypeVar

from leaderq.errors import LeaderqError, QueueFull, WouldDeadlock
from leaderq.threads import primitives
from leaderq.threads.capacity import Waiter, WaitingLine
from leaderq.threads.waker import TaskWaker, Waker

M = TypeVar("M")
STOP: Any = object()
"""The last item of a closed inbox."""


class Inbox(Generic[M]):
    """A queue of items for one taker. ``start()`` is called before the first item is put.

    ``take()`` waits for an item, and :meth:`take_all` for all that wait. Neither frees the places
    of the items: ``release`` does. The last item is ``STOP``.

    Guarantees: never more than ``capacity`` items wait (``None``: any number), except those that
    the taker puts itself, because nobody else could make room. Waiting producers get room in the
    order in which they came, as soon as there is some. Putting takes no lock while there is room: a
    signal handler or a finalizer may put, too. A wait that Ctrl-C interrupts puts nothing.
    Not guaranteed: room for a signal handler or finalizer that interrupts its own thread while that
    thread looks for room; it gets ``WouldDeadlock``.
    """

    def __init__(
        self, name: str, capacity: int | None = None, *, start: Callable[[], object]
    ) -> None:
        self.name = name
        self.capacity = capacity
        self.taker = 0
        """The ident of the thread that takes; it sets this before its first take."""
        self.refused = 0
        self.has_ended = False
        """Whether nobody takes anything out any more."""
        self.is_foreign = False
        """Whether the taker is in another process, from which this one was forked."""
        self.beyond = 0
        """How many items the taker has put without a permit."""
        self._start = start
        self._lock = primitives.RLock()
        self._items: primitives.SimpleQueue[Any] = primitives.SimpleQueue()
        self._permits: list[None] = [None] * (capacity or 0)
        self._line: WaitingLine[M] = WaitingLine(self._take_permit, self._items.put)
        self.waiting = self._line.waiters
        self._closed: Callable[[], LeaderqError] | None = None
        # Bound once: a look-up for each item would cost as much as the call.
        self.take: Callable[..., Any] = self._items.get
        self._put = self._items.put
        self._permit: Callable[[], None] = _no_permit
        is_bounded = capacity is not None
        self._open_permit = self._permits.pop if is_bounded else repeat(None).__next__
        self.release_permit: Callable[[None], object] = (
            self._permits.append if is_bounded else deque[None](maxlen=0).append
        )

    @property
    def is_closed(self) -> bool:
        return self._closed is not None

    @property
    def is_taken_here(self) -> bool:
        """Whether the calling thread is the taker."""
        return self.taker == primitives.get_ident()

    @property
    def depth(self) -> int:
        return max(0, self._items.qsize() - self.is_closed)  # STOP is in it, too

    def put_now(self, item: M) -> bool:
        """Put ``item`` if there is room and nobody waits; return whether it was put. After that,
        the caller must check whether the inbox ``has_ended`` meanwhile.
        """
        try:
            self._permit()
        except IndexError:
            return False
        self._put(item)
        return True

    def put(self, item: M, timeout_s: float | None) -> None:
        """Put ``item``; wait for room at most ``timeout_s`` seconds, ``None`` for ever.

        :raises QueueFull: there was no room in time.
        :raises WouldDeadlock: the caller interrupts its own thread while that thread looks for
            room.
        :raises LeaderqError: the inbox is closed, or was closed during the wait.
        """
        waker = Waker()
        with self._arriving(item, waker.wake, timeout_s) as is_in:
            if not is_in:
                waker.wait(timeout_s)

    async def put_async(self, item: M, timeout_s: float | None) -> None:
        """Do what :meth:`put` does, for a task; the event loop goes on meanwhile."""
        waker = TaskWaker()
        with self._arriving(item, waker.wake, timeout_s) as is_in:
            if not is_in:
                await waker.wait(timeout_s)

    def close(self, error: Callable[[], LeaderqError]) -> None:
        """Refuse further items: waiting and later producers get the error that ``error()`` returns.

        Only the ``error`` of the first close counts. A later close wakes producers that an
        interrupted close has left waiting.
        """
        with self._lock:
            self._permit = _no_permit
            if self._closed is None:
                self._closed = error
                self._put(STOP)
            self._line.close(self.refusal)

    def renounce(self, error: Callable[[], LeaderqError]) -> None:
        """Close the inbox in a forked child, in whatever state the parent's threads have
        left it.
        """
        self._lock = primitives.RLock()
        self.waiting.clear()
        self.is_foreign = True
        self._closed = error
        self._permit = _no_permit

    def take_all(self, into: list[Any], most: float) -> None:
        """Wait for an item. Append it to ``into``, and then the items that wait after it, until
        ``into`` has ``most`` items or ends with ``STOP``.
        """
        into.append(self.take())
        try:
            while len(into) < most and into[-1] is not STOP:
                into.append(self._items.get_nowait())
        except primitives.Empty:
            pass

    def release(self, count: int) -> None:
        """Free the room of ``count`` items that were taken out, and admit waiting producers."""
        for _ in range(count):
            if self.beyond:
                self.beyond -= 1
            else:
                self.release_permit(None)
        if self.waiting:
            with self._lock:
                self._admit()

    def empty(self, into: deque[Any]) -> None:
        """Move all items of a closed inbox to ``into``, in their order. Any thread may call
        this.
        """
        with self._lock:
            try:
                while True:
                    item = self._items.get_nowait()
                    if item is not STOP:
                        into.append(item)
            except primitives.Empty:
                pass
            finally:
                if not self.has_ended:
                    self._put(STOP)

    def refusal(self) -> LeaderqError:
        """Count one more refused item, and return the error for its producer; the inbox is
        closed.
        """
        assert self._closed is not None
        self.refused += 1
        return self._closed()

    @contextmanager
    def _arriving(
        self, item: M, wake: Callable[[], object], timeout_s: float | None
    ) -> Iterator[bool]:
        """Put ``item`` at once, or keep its producer in the line for the length of the ``with``
        block. Yields whether the producer need not wait.
        """
        self._start()
        arrival = self._arrived(item, wake)
        if arrival is None:
            yield True
            return
        try:
            yield timeout_s is not None and timeout_s <= 0
        finally:
            with self._lock:
                if not arrival.is_decided:
                    self._line.leave(arrival)
                    self.refused += 1
                    self._admit()
        if arrival.refusal is not None:
            raise arrival.refusal
        if not arrival.is_admitted:
            raise QueueFull(self.name, capacity=self.capacity or 0, waited_s=timeout_s or 0.0)

    def _arrived(self, item: M, wake: Callable[[], object]) -> Waiter[M] | None:
        """Put ``item`` and return ``None``; if there is no room, return its new entry in
        the line.
        """
        if self._lock._is_owned():  # type: ignore[attr-defined]
            raise WouldDeadlock(f"queue {self.name!r}: this call interrupts its own thread in here")
        with self._lock:
            if self._closed is not None:
                raise self.refusal()
            if self.is_taken_here:
                if not self.put_now(item):
                    self.beyond += 1
                    self._put(item)
                return None
            self._permit = _no_permit  # nobody overtakes from now on
            arrival = self._line.join(item, wake)
            self._admit()
            return None if arrival.is_admitted else arrival

    def _admit(self) -> None:
        """Put the items of waiting producers, as long as there is room. The caller holds
        the lock.
        """
        self._line.admit()
        if self._closed is None and not self.waiting:
            self._permit = self._open_permit

    def _take_permit(self, _item: M) -> bool:
        try:
            self._open_permit()
        except IndexError:
            return False
        return True


def _no_permit() -> None:
    raise IndexError
