"""What brings requests to the writer: at most so many at a time, first come, first served.

Who is authoritative: the *permits*, one for each free place, in a list whose ``pop`` and ``append``
are atomic. Whoever puts a request takes a permit first; the writer returns it when it has taken
the request out. So no lock is held on the quick way in, and a finalizer or a signal handler that
interrupts one ``put`` may call another. Everything else is decided under ``_lock``; one that
interrupts its own thread there puts its request at once, beyond the capacity, because nobody could
make room until it returns.

States: new (no permits) -> open <-> occupied (somebody waits; newcomers find no permits) -> closed.

A producer that waits is admitted by the writer as soon as it has taken a request out: it puts the
request on the producer's behalf. No wake-up is lost: the producer notes itself first and looks for
a permit again afterwards; the writer returns a permit first and looks for those who wait
afterwards. No request is lost either: one that was put by a thread that had its permit before the
mailbox was closed, and was held up until the writer had ended, is found by that thread, because it
looks afterwards whether the writer has ended.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from queue import Empty, SimpleQueue
from typing import Any

from leaderq.errors import LeaderqError, QueueFull
from leaderq.singular.request import Home, TrackedRequest
from leaderq.threads import Waker

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
    """A bounded line of requests to one taker.

    *Guarantees:* never more than ``capacity`` items wait in it, but for those that the taker puts
    itself, because only it could make room, and those of a signal handler or finalizer that has
    interrupted a ``put`` of its own thread. Who waits for room gets it in the order of coming, as
    soon as there is some.
    """

    def __init__(self, home: Home, capacity: int | None) -> None:
        self.capacity = capacity
        self.refused = 0
        self.waiting: deque[_Arrival] = deque()
        self.has_ended = False
        """Whether nobody takes anything out any more."""
        self._home = home
        self._lock = threading.RLock()
        self._inside: set[int] = set()
        """The threads that hold the lock, or are about to, or just did."""
        self._items: SimpleQueue[Any] = SimpleQueue()
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
        self.give_back: Callable[[None], object] = (
            self._permits.append if is_bounded else deque[None](maxlen=0).append
        )

    @property
    def is_closed(self) -> bool:
        """Whether nothing gets in any more."""
        return self._closed is not None

    @property
    def depth(self) -> int:
        """How many requests wait in it."""
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
        arrival = _Arrival(item, waker.wake)
        if self._arrived(arrival, timeout_s):
            return
        try:
            waker.wait(timeout_s)
        finally:
            is_decided = arrival.is_in or self._withdrawn(arrival)
        self._check(arrival, is_decided, timeout_s)

    async def put_async(self, item: Any, timeout_s: float | None) -> None:
        """As :meth:`put`, for a task of an asyncio loop, which goes on meanwhile."""
        import asyncio  # here, because most who use queues do without

        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(woken.set)
            except RuntimeError:
                pass  # the loop is closed, and with it whoever waited

        arrival = _Arrival(item, wake)
        if self._arrived(arrival, timeout_s):
            return
        # Not asyncio.wait_for, which before Python 3.12 may swallow a cancellation.
        timer = None if timeout_s is None else loop.call_later(timeout_s, woken.set)
        try:
            await woken.wait()
        finally:
            is_decided = arrival.is_in or self._withdrawn(arrival)
            if timer is not None:
                timer.cancel()
        self._check(arrival, is_decided, timeout_s)

    def open(self) -> None:
        """Let requests in, unless it is closed, or somebody waits."""
        with self._lock:
            if self._closed is None and not self.waiting:
                self._permit = self._open_permit

    def close(self, error: Callable[[], LeaderqError]) -> None:
        """Let nothing in any more: who waits or comes later gets the error that ``error()`` makes.

        The first close counts; later ones wake whoever an interrupted one has left.
        """
        with self._alone():
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
        self._lock = threading.RLock()
        self._inside = set()
        self.waiting = deque()
        self._closed = error
        self._permit = _no_permit

    # -- for the taker -------------------------------------------------------------------------

    def release(self, count: int) -> None:
        """Return the room of ``count`` items that were taken out, and admit those who wait."""
        for _ in range(count):
            if self.beyond:
                self.beyond.pop()
            else:
                self.give_back(None)
        if self.waiting:
            self.admit()

    def admit(self) -> None:
        """Put the requests of those who wait, in their order, as far as there is room."""
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
                if self.waiting and self.waiting[0] is arrival:  # else a finalizer has withdrawn it
                    self.waiting.popleft()
            self.open()

    def heal(self) -> None:
        """With nothing in it: take back permits that Ctrl-C has left too many of."""
        if self.capacity is not None and len(self._permits) > self.capacity:
            del self._permits[self.capacity :]

    def note_stop(self) -> None:
        """``STOP`` was taken out."""
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
            except Empty:
                pass
            if self._has_stop:
                self._put(STOP)

    # -- inside --------------------------------------------------------------------------------

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Hold the lock; tells whether this thread was inside already: then it was interrupted
        there by a signal handler or a finalizer, which must not wait.
        """
        me = threading.get_ident()
        is_nested = me in self._inside
        try:
            self._inside.add(me)
            with self._lock:
                yield is_nested
        finally:
            if not is_nested:
                self._inside.discard(me)

    def _arrived(self, arrival: _Arrival, timeout_s: float | None) -> bool:
        """Put the item at once and return ``True``, or note that its producer waits."""
        with self._alone() as is_nested:
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
        with self._alone():
            if arrival.is_in or arrival.refusal is not None:
                return True
            self.waiting.remove(arrival)
            self.refused += 1
            self.open()
            return False

    def _check(self, arrival: _Arrival, is_decided: bool, timeout_s: float | None) -> None:
        if not is_decided:
            raise self._full(timeout_s or 0.0)
        if arrival.refusal is not None:
            raise arrival.refusal

    def _full(self, waited_s: float) -> QueueFull:
        return QueueFull(self._home.name, capacity=self.capacity or 0, waited_s=waited_s)


def _no_permit() -> None:
    raise IndexError
