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
from leaderq.singular.request import Home, TrackedRequest
from leaderq.threads import Waker, primitives

STOP = TrackedRequest(None, None)
"""The last item of a closed mailbox."""


class _Arrival:
    """A request that waits for room; ``is_in`` once it was put, ``refusal`` once it never will."""

    __slots__ = ("is_in", "item", "refusal", "wake")

    def __init__(self, item: Any, wake: Callable[[], object]) -> None:
        self.item = item
        self.wake = wake
        self.is_in = False
        self.refusal: LeaderqError | None = None


class Mailbox:
    """A bounded line of requests to one taker; see :class:`SingularUpdateQueue` for the bound."""

    def __init__(self, home: Home, capacity: int | None) -> None:
        self.capacity = capacity
        self.refused = 0
        self.waiting: deque[_Arrival] = deque()
        self.has_ended = False
        """Whether nobody takes anything out any more."""
        self._home = home
        self._lock = primitives.RLock()
        self._items: primitives.SimpleQueue[Any] = primitives.SimpleQueue()
        self._permits: list[None] = [None] * (capacity or 0)
        self.beyond: list[None] = []
        """One for each item that was put without a permit."""
        self._has_stop = False
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
        return max(0, self.qsize() - self._has_stop)

    def put_now(self, item: Any) -> bool:
        """Put ``item`` if there is room and nobody waits; return whether that was so."""
        try:
            self._permit()
        except IndexError:
            return False
        has_permit = True
        try:
            self._put(item)
            has_permit = False
        finally:
            if has_permit:  # Ctrl-C came in between
                self._permits.append(None)
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
        import asyncio  # here, because most who use queues do without

        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(woken.set)
            except RuntimeError:
                pass  # the loop is closed, and with it the waiting task

        with self._arriving(item, wake, timeout_s) as is_in:
            if is_in:
                return
            # Not asyncio.wait_for, which before Python 3.12 may swallow a cancellation.
            timer = None if timeout_s is None else loop.call_later(timeout_s, woken.set)
            try:
                await woken.wait()
            finally:
                if timer is not None:
                    timer.cancel()

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
                self._has_stop = True
                self._put(STOP)
            while self.waiting:
                arrival = self.waiting[0]
                if not arrival.is_in and arrival.refusal is None:
                    arrival.refusal = self._closed()
                    self.refused += 1
                arrival.wake()
                self.waiting.popleft()

    def renounce(self, error: Callable[[], LeaderqError]) -> None:
        """Close it in a forked child, whatever state the parent's threads have left it in."""
        self._lock = primitives.RLock()
        self.waiting = deque()
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
            while self.waiting:
                arrival = self.waiting[0]
                if not arrival.is_in:
                    try:
                        self._open_permit()
                    except IndexError:
                        break
                    arrival.is_in = True
                    self._put(arrival.item)
                arrival.wake()
                # otherwise a finalizer has withdrawn it
                if self.waiting and self.waiting[0] is arrival:
                    self.waiting.popleft()
            self.open()

    def note_stop(self) -> None:
        with self._lock:
            self._has_stop = False

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
            if self._has_stop:
                self._put(STOP)

    @contextmanager
    def _arriving(
        self, item: Any, wake: Callable[[], object], timeout_s: float | None
    ) -> Iterator[bool]:
        """Put ``item`` at once, or note that its producer waits in the block; tells which."""
        arrival = _Arrival(item, wake)
        if self._arrived(arrival, timeout_s):
            yield True
            return
        try:
            yield False
        finally:
            is_decided = arrival.is_in or self._withdrawn(arrival)
        if not is_decided:
            raise self._full(timeout_s or 0.0)
        if arrival.refusal is not None:
            raise arrival.refusal

    def _arrived(self, arrival: _Arrival, timeout_s: float | None) -> bool:
        # A signal handler or a finalizer that interrupted its own thread in here must not wait.
        is_nested = self._lock._is_owned()  # type: ignore[attr-defined]
        with self._lock:
            if self._closed is not None:
                self.refused += 1
                raise self._closed()
            if is_nested or self._home.is_mine:
                if not self.put_now(arrival.item):
                    self.beyond.append(None)
                    self._put(arrival.item)
                return True
            self._permit = _no_permit  # nobody overtakes from now on
            self.waiting.append(arrival)
            self.admit()
            if not arrival.is_in and timeout_s is not None and timeout_s <= 0:
                self._withdrawn(arrival)
                raise self._full(0.0)
            return arrival.is_in

    def _withdrawn(self, arrival: _Arrival) -> bool:
        """Wait no more for room; return whether it was decided already."""
        with self._lock:
            if arrival.is_in or arrival.refusal is not None:
                return True
            self.waiting.remove(arrival)
            self.refused += 1
            self.open()
            return False

    def _full(self, waited_s: float) -> QueueFull:
        return QueueFull(self._home.name, capacity=self.capacity or 0, waited_s=waited_s)


def _no_permit() -> None:
    raise IndexError
