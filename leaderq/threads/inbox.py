"""What any thread leaves for the one that takes it: first come, first served, at most so many.

The *permits* are authoritative, one for each free place, in a list whose ``pop`` and ``append`` are
atomic. Whoever puts takes a permit first; the taker returns it when it has taken the item out. So
putting takes no lock while there is room. Everything else is decided under ``_lock``.

States: new (no permits) -> open <-> occupied (somebody waits; newcomers find no permits) -> closed.

The taker puts the item of a waiting producer on its behalf, as soon as it has taken one out. No
wake-up is lost: the producer notes itself first and looks for a permit afterwards; the taker
returns a permit first and looks for those who wait afterwards. No item is lost either: a thread
that had its permit before the inbox was closed finds ``has_ended`` after its put.
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
    """A line of items to one taker; ``start`` is called before the first is put.

    ``take()`` waits for an item, and :meth:`take_all` for all that wait. Neither returns the places
    of the items: ``release`` does. The last item is ``STOP``.

    Guarantees: never more than ``capacity`` items wait (``None``: any number), except those that
    the taker puts itself, because nobody else could make room. Who waits for room gets it in the
    order of coming, as soon as there is some. Putting takes no lock while there is room: a signal
    handler or a finalizer may put, too. Ctrl-C in a wait puts nothing.
    Not guaranteed: room for a signal handler or finalizer that interrupts its own thread while that
    finds none; it gets ``WouldDeadlock``.
    """

    def __init__(
        self, name: str, capacity: int | None = None, *, start: Callable[[], object]
    ) -> None:
        self.name = name
        self.capacity = capacity
        self.taker = 0
        """The thread that takes, which sets this before it does."""
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

        :raises QueueFull: there was none in time.
        :raises WouldDeadlock: the caller interrupts its own thread while that looks for room.
        :raises LeaderqError: the inbox is closed, or was meanwhile.
        """
        waker = Waker()
        with self._arriving(item, waker.wake, timeout_s) as is_in:
            if not is_in:
                waker.wait(timeout_s)

    async def put_async(self, item: M, timeout_s: float | None) -> None:
        """As :meth:`put`, for a task; the event loop goes on meanwhile."""
        waker = TaskWaker()
        with self._arriving(item, waker.wake, timeout_s) as is_in:
            if not is_in:
                await waker.wait(timeout_s)

    def close(self, error: Callable[[], LeaderqError]) -> None:
        """Let nothing more in: waiting and later producers get the error that ``error()`` makes.

        The first close counts; later ones wake producers that an interrupted close has left.
        """
        with self._lock:
            self._permit = _no_permit
            if self._closed is None:
                self._closed = error
                self._put(STOP)
            self._line.close(self.refusal)

    def renounce(self, error: Callable[[], LeaderqError]) -> None:
        """Close it in a forked child, whatever state the parent's threads have left it in."""
        self._lock = primitives.RLock()
        self.waiting.clear()
        self.is_foreign = True
        self._closed = error
        self._permit = _no_permit

    def take_all(self, into: list[Any], most: float = 1, timeout_s: float | None = None) -> None:
        """Wait for an item, for ``timeout_s`` seconds; move it, and what waits behind it, into a
        list: at most so many, and nothing behind ``STOP``.
        """
        try:
            into.append(self.take(True, timeout_s))
            while len(into) < most and into[-1] is not STOP:
                into.append(self._items.get_nowait())
        except primitives.Empty:
            pass

    def release(self, count: int) -> None:
        """Return the room of ``count`` items that were taken out, and admit waiting producers."""
        for _ in range(count):
            if self.beyond:
                self.beyond -= 1
            else:
                self.release_permit(None)
        if self.waiting:
            with self._lock:
                self._admit()

    def empty(self, into: deque[Any]) -> None:
        """Move all items of a closed inbox out of it, in their order; on any thread."""
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
        """The error of whoever comes to a closed inbox."""
        assert self._closed is not None
        self.refused += 1
        return self._closed()

    @contextmanager
    def _arriving(
        self, item: M, wake: Callable[[], object], timeout_s: float | None
    ) -> Iterator[bool]:
        """Put ``item`` at once, or note that its producer waits within the ``with`` block; yields
        whether the producer need not wait.
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
        """Put ``item`` and return ``None``, or return its entry in the line, where it waits."""
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
        """Put the items of waiting producers as far as there is room; under the lock."""
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
