"""Room for a number of items and bytes, given out first come, first served."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable
from enum import Enum, auto

from leaderq.errors import LeaderqError
from leaderq.threads.waker import Waker


class _Fate(Enum):
    WAITING = auto()
    ADMITTED = auto()
    REFUSED = auto()


class _Waiter:
    __slots__ = ("fate", "items", "size", "waker")

    def __init__(self, items: int, size: int) -> None:
        self.items = items
        self.size = size
        self.waker = Waker()
        self.fate = _Fate.WAITING


class Capacity:
    """Bounds what is under way: at most ``max_items`` items and ``max_bytes`` bytes.

    Guarantees: nobody overtakes one who waits. Whoever waits first proceeds as soon as there is
    room for it: the release that makes the room takes it on the waiter's behalf. One request larger
    than the bounds is admitted when nothing else is under way. Ctrl-C in a wait takes no room.
    Not guaranteed: use in signal handlers or finalizers, because a short lock is held inside.
    """

    def __init__(self, max_items: float, max_bytes: float = math.inf) -> None:
        self.max_items = max_items
        self.max_bytes = max_bytes
        self.items = 0
        """Items under way; to read it no lock is needed."""
        self.bytes = 0
        """Bytes under way."""
        self._lock = threading.Lock()
        self._waiters: deque[_Waiter] = deque()
        self._awaiting_empty: list[Waker] = []
        self._closed: Callable[[], LeaderqError] | None = None

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._waiters)

    def acquire(self, items: int = 1, size: int = 0, timeout_s: float | None = None) -> bool:
        """Take room for ``items`` of ``size`` bytes in all; return whether there was any in time.

        ``timeout_s``: seconds to wait at most; 0 does not wait, ``None`` waits without end.

        :raises LeaderqError: the one that :meth:`close` was given; nothing was taken.
        """
        with self._lock:
            self._check_open()
            if not self._waiters and self._fits(items, size):
                self._take(items, size)
                return True
            if timeout_s is not None and timeout_s <= 0:
                return False
            waiter = _Waiter(items, size)
            self._waiters.append(waiter)
        try:
            waiter.waker.wait(timeout_s)
        except BaseException:
            with self._lock:
                self._withdraw(waiter)
                if waiter.fate is _Fate.ADMITTED:
                    self._give_back(items, size)
            raise
        with self._lock:
            self._withdraw(waiter)
            if waiter.fate is _Fate.REFUSED:
                self._check_open()
            return waiter.fate is _Fate.ADMITTED

    def take(self, items: int = 1, size: int = 0) -> None:
        """Take it without waiting, room or not: for whoever is needed to make room.

        :raises LeaderqError: the one that :meth:`close` was given; nothing was taken.
        """
        with self._lock:
            self._check_open()
            self._take(items, size)

    def release(self, items: int = 1, size: int = 0) -> None:
        """Give room back, and admit those who wait, in their order, as far as there is room.

        :raises ValueError: more than was taken; nothing was given back.
        """
        with self._lock:
            if items > self.items or size > self.bytes:
                taken = f"only {self.items} items of {self.bytes} bytes are taken"
                raise ValueError(f"{items} items of {size} bytes were released; {taken}")
            self._give_back(items, size)

    def wait_empty(self, timeout_s: float | None = None) -> bool:
        """Return whether nothing was under way at some instant within ``timeout_s`` seconds."""
        with self._lock:
            if self._is_empty:
                return True
            waker = Waker()
            self._awaiting_empty.append(waker)
        try:
            return waker.wait(timeout_s)
        finally:
            with self._lock:
                if waker in self._awaiting_empty:
                    self._awaiting_empty.remove(waker)

    def close(self, error: Callable[[], LeaderqError]) -> None:
        """Admit nobody any more: who waits or comes later gets the error that ``error()`` returns.

        What is under way may be released as before. The first close counts.
        """
        with self._lock:
            self._closed = self._closed or error
            while self._waiters:
                self._decide(self._waiters.popleft(), _Fate.REFUSED)

    # -- under the lock --------------------------------------------------------------------------

    @property
    def _is_empty(self) -> bool:
        return not (self.items or self.bytes)

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed()

    def _fits(self, items: int, size: int) -> bool:
        if self._is_empty:
            return True
        return self.items + items <= self.max_items and self.bytes + size <= self.max_bytes

    def _take(self, items: int, size: int) -> None:
        self.items += items
        self.bytes += size

    def _give_back(self, items: int, size: int) -> None:
        self.items -= items
        self.bytes -= size
        if self._is_empty:
            for waker in self._awaiting_empty:
                waker.wake()
        self._admit()

    def _admit(self) -> None:
        while self._waiters and self._fits(self._waiters[0].items, self._waiters[0].size):
            waiter = self._waiters.popleft()
            self._take(waiter.items, waiter.size)
            self._decide(waiter, _Fate.ADMITTED)

    def _withdraw(self, waiter: _Waiter) -> None:
        """One that was not decided in time leaves; those behind it may fit now."""
        if waiter.fate is _Fate.WAITING:
            self._waiters.remove(waiter)
            self._admit()

    @staticmethod
    def _decide(waiter: _Waiter, fate: _Fate) -> None:
        waiter.fate = fate
        waiter.waker.wake()
