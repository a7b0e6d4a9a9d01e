"""Two classes: a line of waiters, which get room in the order in which they came; and a room that
holds a limited number of items and bytes.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from leaderq.errors import LeaderqError
from leaderq.threads import primitives
from leaderq.threads.waker import Waker

W = TypeVar("W")


@dataclass(eq=False, slots=True)
class Waiter(Generic[W]):
    """An entry of a :class:`WaitingLine`. It waits for room for ``what``, until it is admitted or
    refused, or leaves.
    """

    what: W
    wake: Callable[[], object]
    is_admitted: bool = False
    refusal: LeaderqError | None = None

    @property
    def is_decided(self) -> bool:
        return self.is_admitted or self.refusal is not None


class WaitingLine(Generic[W]):
    """Those who wait for room, in the order in which they came. Not synchronised: its owner's lock
    guards it, and may be reentrant.

    :meth:`admit` calls ``take(what)``, which takes room for the first waiter and returns whether
    there was any. If there was, ``admit`` calls ``enter(what)`` and wakes the waiter. All of this
    happens on the thread that has made room: so a waiter proceeds as soon as there is room for it,
    and nobody can overtake it. A ``take`` may also only wake the first waiter and return ``False``;
    that waiter then looks for room itself.
    """

    def __init__(
        self, take: Callable[[W], bool], enter: Callable[[W], object] | None = None
    ) -> None:
        self.waiters: deque[Waiter[W]] = deque()
        self._take = take
        self._enter = enter

    def __len__(self) -> int:
        return len(self.waiters)

    def join(self, what: W, wake: Callable[[], object]) -> Waiter[W]:
        """Add a waiter at the end of the line, and return it. ``wake()`` is called when it is
        admitted or refused.
        """
        self.waiters.append(waiter := Waiter(what, wake))
        return waiter

    def admit(self) -> None:
        """Admit waiters from the front of the line, until there is no room for the next one."""
        while self.waiters:
            waiter = self.waiters[0]
            if not waiter.is_admitted:
                if not self._take(waiter.what):
                    return
                waiter.is_admitted = True
                if self._enter is not None:
                    self._enter(waiter.what)
            self._dismiss(waiter)

    def leave(self, waiter: Waiter[W]) -> None:
        """Remove ``waiter``, then admit the waiters after it for which there is room now."""
        if waiter in self.waiters:
            self.waiters.remove(waiter)
            self.admit()

    def close(self, error: Callable[[], LeaderqError]) -> None:
        """Refuse all who wait, each with the error that ``error()`` returns."""
        while self.waiters:
            waiter = self.waiters[0]
            if not waiter.is_decided:
                waiter.refusal = error()
            self._dismiss(waiter)

    def _dismiss(self, waiter: Waiter[W]) -> None:
        waiter.wake()
        # otherwise a finalizer that came in between has let it leave
        if self.waiters and self.waiters[0] is waiter:
            self.waiters.popleft()


class Capacity:
    """Limits the work under way to ``max_items`` items and ``max_bytes`` bytes.

    ``items`` and ``bytes`` count what is under way, and may be read without a lock.

    Guarantees: nobody overtakes a waiter: the release that makes room for the first waiter also
    takes that room for it. One request larger than the bounds is admitted when nothing else is
    under way. A wait that Ctrl-C interrupts takes no room.
    Not guaranteed: use in signal handlers or finalizers, because a short lock is held inside.
    """

    def __init__(self, max_items: float, max_bytes: float = math.inf) -> None:
        self.max_items = max_items
        self.max_bytes = max_bytes
        self.items = 0
        self.bytes = 0
        self._lock = primitives.Lock()
        self._line: WaitingLine[tuple[int, int]] = WaitingLine(self._take_if_it_fits)
        self._awaiting_empty: list[Waker] = []
        self._closed: Callable[[], LeaderqError] | None = None

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._line)

    def acquire(self, items: int = 1, size: int = 0, timeout_s: float | None = None) -> bool:
        """Take room for ``items`` items of ``size`` bytes in all; return whether it was free within
        ``timeout_s`` seconds (0 does not wait, ``None`` waits without end).

        :raises LeaderqError: the one that :meth:`close` was given; nothing was taken.
        """
        with self._lock:
            self._check_open()
            if not self._line.waiters and self._take_if_it_fits((items, size)):
                return True
            if timeout_s is not None and timeout_s <= 0:
                return False
            waker = Waker()
            waiter = self._line.join((items, size), waker.wake)
        try:
            waker.wait(timeout_s)
        except BaseException:
            self._leave(waiter)
            if waiter.is_admitted:
                self.release(items, size)
            raise
        self._leave(waiter)
        if waiter.refusal is not None:
            raise waiter.refusal
        return waiter.is_admitted

    def take(self, items: int = 1, size: int = 0) -> None:
        """Take room at once, even beyond the limits: for a caller that must go on before others can
        release their room.

        :raises LeaderqError: the one that :meth:`close` was given; nothing was taken.
        """
        with self._lock:
            self._check_open()
            self._add(items, size)

    def release(self, items: int = 1, size: int = 0) -> None:
        """Give room back; then admit waiters, in their order, as long as there is room.

        :raises ValueError: the caller releases more than is taken; nothing was released.
        """
        with self._lock:
            if items > self.items or size > self.bytes:
                taken = f"only {self.items} items of {self.bytes} bytes are taken"
                raise ValueError(f"{items} items of {size} bytes were released; {taken}")
            self._add(-items, -size)
            if not (self.items or self.bytes):
                for waker in self._awaiting_empty:
                    waker.wake()
            self._line.admit()

    def wait_empty(self, timeout_s: float | None = None) -> bool:
        """Wait until nothing is under way; return whether that came within ``timeout_s`` seconds.
        ``None`` waits without end.
        """
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
        """Admit nobody any more: present waiters and later callers get the error that ``error()``
        returns.

        Room that is taken may still be released. A second close changes nothing.
        """
        with self._lock:
            self._closed = self._closed or error
            self._line.close(self._closed)

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed()

    # Under the lock, as the line.

    def _take_if_it_fits(self, room: tuple[int, int]) -> bool:
        items, size = self.items + room[0], self.bytes + room[1]
        is_empty = not (self.items or self.bytes)
        fits = is_empty or (items <= self.max_items and size <= self.max_bytes)
        if fits:
            self._add(*room)
        return fits

    def _add(self, items: int, size: int) -> None:
        self.items += items
        self.bytes += size

    def _leave(self, waiter: Waiter[tuple[int, int]]) -> None:
        with self._lock:
            self._line.leave(waiter)
