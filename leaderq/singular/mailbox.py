"""What brings requests to the writer: at most so many at a time, first come, first served.

The *permits* are authoritative, one for each free place, in a list whose ``pop`` and ``append`` are
atomic. Whoever puts a request takes a permit first; the writer returns it when it has taken the
request out. So putting takes no lock, and a finalizer or signal handler that interrupts one ``put``
may call another. Everything else is decided under ``_lock``; a put that interrupts its own thread
there is accepted beyond the capacity, because nobody could make room until it returns.

States: new (no permits) -> open <-> occupied (somebody waits; newcomers find no permits) -> closed.

The writer puts the request of a waiting producer on its behalf, as soon as it has taken one out. No
wake-up is lost: the producer notes itself first and looks for a permit afterwards; the writer
returns a permit first and looks for those who wait afterwards. No request is lost either: a thread
that had its permit before the mailbox was closed checks after its put whether the writer has ended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from typing import Any

from leaderq.errors import LeaderqError, QueueFull
from leaderq.singular.request import Home
from leaderq.threads import TaskWaker, Waiter, WaitingLine, Waker, primitives

STOP: Any = object()
"""The last item of a closed mailbox."""


class Mailbox:
    """A bounded line of requests to one taker; see :class:`SingularUpdateQueue` for the bound."""

    def __init__(self, home: Home, capacity: int | None) -> None:
        self.capacity = capacity
        self.refused = 0
        self.has_ended = False
        """Whether nobody takes anything out any more."""
        self._home = home
        self._lock = primitives.RLock()
        self._items: primitives.SimpleQueue[Any] = primitives.SimpleQueue()
        self._permits: list[None] = [None] * (capacity or 0)
        self._line: WaitingLine[Any] = WaitingLine(self._take_permit, self._items.put)
        self.waiting = self._line.waiters
        self.beyond: list[None] = []
        """One for each item that was put without a permit."""
        self._closed: Callable[[], LeaderqError] | None = None
        # Bound once: a look-up for each request would cost as much as the call.
        self.take = self._items.get
        self.take_at_once = self._items.get_nowait
        self.qsize = self._items.qsize
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
    def depth(self) -> int:
        return max(0, self.qsize() - self.is_closed)  # STOP is in it, too

    def put_now(self, item: Any) -> bool:
        """Put ``item`` if there is room and nobody waits; return whether that was so."""
        try:
            self._permit()
        except IndexError:
            return False
        self._put(item)
        return True

    def put(self, item: Any, timeout_s: float | None) -> None:
        """Put ``item``; wait for room at most ``timeout_s`` seconds, ``None`` for ever.

        :raises QueueFull: there was none in time.
        :raises LeaderqError: the mailbox is closed, or was meanwhile.
        """
        waker = Waker()
        with self._arriving(item, waker.wake, timeout_s) as is_in:
            if not is_in:
                waker.wait(timeout_s)

    async def put_async(self, item: Any, timeout_s: float | None) -> None:
        """As :meth:`put`, for a task; the event loop goes on meanwhile."""
        waker = TaskWaker()
        with self._arriving(item, waker.wake, timeout_s) as is_in:
            if not is_in:
                await waker.wait(timeout_s)

    def open(self) -> None:
        with self._lock:
            if self._closed is None and not self.waiting:
                self._permit = self._open_permit

    def close(self, error: Callable[[], LeaderqError]) -> None:
        """Let nothing more in: waiting and later producers get the error that ``error()`` makes.

        The first close counts; later ones wake producers that an interrupted close has left.
        """
        with self._lock:
            self._permit = _no_permit
            if self._closed is None:
                self._closed = error
                self._put(STOP)
            self._line.close(self._refusal)

    def renounce(self, error: Callable[[], LeaderqError]) -> None:
        """Close it in a forked child, whatever state the parent's threads have left it in."""
        self._lock = primitives.RLock()
        self.waiting.clear()
        self._closed = error
        self._permit = _no_permit

    def release(self, count: int) -> None:
        """Return the room of ``count`` items that were taken out, and admit waiting producers."""
        for _ in range(count):
            if self.beyond:
                self.beyond.pop()
            else:
                self.release_permit(None)
        if self.waiting:
            self.admit()

    def admit(self) -> None:
        """Put the requests of waiting producers, in their order, as far as there is room."""
        with self._lock:
            self._line.admit()
            self.open()

    def sweep(self, into: deque[Any]) -> None:
        """Move all requests of a closed mailbox out of it, in their order; on any thread."""
        with self._lock:
            try:
                while True:
                    item = self._items.get_nowait()
                    if item is not STOP:
                        into.append(item)
            except primitives.Empty:
                pass
            if not self.has_ended:
                self._put(STOP)

    @contextmanager
    def _arriving(
        self, item: Any, wake: Callable[[], object], timeout_s: float | None
    ) -> Iterator[bool]:
        """Put ``item`` at once, or note that its producer waits in the block; tells which."""
        arrival = self._arrived(item, wake, timeout_s)
        if arrival is None:
            yield True
            return
        try:
            yield False
        finally:
            self._depart(arrival)
        if arrival.refusal is not None:
            raise arrival.refusal
        if not arrival.is_admitted:
            raise self._full(timeout_s or 0.0)

    def _arrived(
        self, item: Any, wake: Callable[[], object], timeout_s: float | None
    ) -> Waiter[Any] | None:
        """Put ``item`` and return ``None``, or the one that waits to put it."""
        # A signal handler or a finalizer that interrupted its own thread in here must not wait.
        is_nested = self._lock._is_owned()  # type: ignore[attr-defined]
        with self._lock:
            if self._closed is not None:
                raise self._refusal()
            if is_nested or self._home.is_mine:
                if not self.put_now(item):
                    self.beyond.append(None)
                    self._put(item)
                return None
            self._permit = _no_permit  # nobody overtakes from now on
            arrival = self._line.join(item, wake)
            self.admit()
            if not arrival.is_admitted and timeout_s is not None and timeout_s <= 0:
                self._depart(arrival)
                raise self._full(0.0)
            return None if arrival.is_admitted else arrival

    def _depart(self, arrival: Waiter[Any]) -> None:
        """Wait no more for room."""
        with self._lock:
            if not arrival.is_decided:
                self._line.leave(arrival)
                self.refused += 1
                self.open()

    def _take_permit(self, _item: Any) -> bool:
        try:
            self._open_permit()
        except IndexError:
            return False
        return True

    def _refusal(self) -> LeaderqError:
        assert self._closed is not None
        self.refused += 1
        return self._closed()

    def _full(self, waited_s: float) -> QueueFull:
        return QueueFull(self._home.name, capacity=self.capacity or 0, waited_s=waited_s)


def _no_permit() -> None:
    raise IndexError
