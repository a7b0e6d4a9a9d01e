"""Room for a number of items and bytes, given out first come, first served."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from leaderq.errors import LeaderqError
from leaderq.threads import primitives
from leaderq.threads.waker import Waker


@dataclass(eq=False, slots=True)
class _Waiter:
    items: int
    size: int
    waker: Waker = field(default_factory=Waker)
    admitted: bool = False


class Capacity:
    """Bounds what is under way: at most ``max_items`` items and ``max_bytes`` bytes.

    ``items`` and ``bytes`` count what is under way; to read them no lock is needed.

    Guarantees: nobody overtakes one who waits; the release that makes room for the first takes it
    on the waiter's behalf. One request larger than the bounds is admitted when nothing else is
    under way. Ctrl-C in a wait takes no room.
    Not guaranteed: use in signal handlers or finalizers, because a short lock is held inside.
    """

    def __init__(self, max_items: float, max_bytes: float = math.inf) -> None:
        self.max_items = max_items
        self.max_bytes = max_bytes
        self.items = 0
        self.bytes = 0
        self._lock = primitives.Lock()
        self._waiters: deque[_Waiter] = deque()
        self._awaiting_empty: list[Waker] = []
        self._closed: Callable[[], LeaderqError] | None = None

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._waiters)

    def acquire(self, items: int = 1, size: int = 0, timeout_s: float | None = None) -> bool:
        """Take room for ``items`` of ``size`` bytes in all; return whether there was any within
        ``timeout_s`` seconds (0 does not wait, ``None`` waits without end).

        :raises LeaderqError: the one that :meth:`close` was given; nothing was taken.
        """
        with self._lock:
            self._check_open()
            if not self._waiters and self._fits(items, size):
                self._add(items, size)
                return True
            if timeout_s is not None and timeout_s <= 0:
                return False
            waiter = _Waiter(items, size)
            self._waiters.append(waiter)
        try:
            waiter.waker.wait(timeout_s)
        except BaseException:
            if self._leave(waiter):
                self.release(items, size)
            raise
        if not self._leave(waiter):
            self._check_open()
        return waiter.admitted

    def take(self, items: int = 1, size: int = 0) -> None:
        """Take it without waiting, room or not: for whoever is needed to make room.

        :raises LeaderqError: the one that :meth:`close` was given; nothing was taken.
        """
        with self._lock:
            self._check_open()
            self._add(items, size)

    def release(self, items: int = 1, size: int = 0) -> None:
        """Give room back, and admit those who wait, in their order, as far as there is room.

        :raises ValueError: more than was taken; nothing was released.
        """
        with self._lock:
            if items > self.items or size > self.bytes:
                taken = f"only {self.items} items of {self.bytes} bytes are taken"
                raise ValueError(f"{items} items of {size} bytes were released; {taken}")
            self._add(-items, -size)
            if not (self.items or self.bytes):
                for waker in self._awaiting_empty:
                    waker.wake()
            self._admit()

    def wait_empty(self, timeout_s: float | None = None) -> bool:
        """Return whether nothing was under way at some instant within ``timeout_s`` seconds."""
        with self._lock:
            if not (self.items or self.bytes):
                return True
            waker = Waker()
            self._awaiting_empty.append(waker)
        try:
            return waker.wait(timeout_s)
        finally:
            with self._lock:
                self._awaiting_empty.remove(waker)

    def close(self, error: Callable[[], LeaderqError]) -> None:
        """Admit nobody any more: who waits or comes later gets the error that ``error()`` returns.

        What is under way may be released as before. The first close counts.
        """
        with self._lock:
            self._closed = self._closed or error
            while self._waiters:
                self._waiters.popleft().waker.wake()

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed()

    def _fits(self, items: int, size: int) -> bool:
        items, size = self.items + items, self.bytes + size
        is_empty = not (self.items or self.bytes)
        return is_empty or (items <= self.max_items and size <= self.max_bytes)

    def _add(self, items: int, size: int) -> None:
        self.items += items
        self.bytes += size

    def _admit(self) -> None:  # under the lock, as the two above
        while self._waiters and self._fits(self._waiters[0].items, self._waiters[0].size):
            waiter = self._waiters.popleft()
            self._add(waiter.items, waiter.size)
            waiter.admitted = True
            waiter.waker.wake()

    def _leave(self, waiter: _Waiter) -> bool:
        """Return whether it was admitted; if it still waits, those behind it may fit now."""
        with self._lock:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
                self._admit()
            return waiter.admitted
