"""How many puts are unsettled: bounds memory, and is what ``flush_puts`` and ``close`` wait for."""

from __future__ import annotations

import threading

from leaderq.clock import now_s
from leaderq.errors import QueueClosed

MAX_ITEMS = 8192
"""Znodes that may be on their way at a time; beyond them a put waits."""
MAX_BYTES = 48 << 20
"""Bytes of data that may be on their way at a time."""


class Backlog:
    """See the module. One larger than the bounds still goes when nothing else is on its way."""

    def __init__(self, max_items: int = MAX_ITEMS, max_bytes: int = MAX_BYTES) -> None:
        self._max_items = max_items
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiters = 0
        self._is_closed = False
        self.items = 0
        self._bytes = 0

    def enter(self, items: int, size: int, deadline: float | None = None, *, at_once: bool = False) -> bool:
        """Wait for room, and take it; ``False``: there was none by ``deadline`` (of ``clock.now_s``).

        ``at_once``: do not wait (for who is needed to make room).

        :raises QueueClosed: closed before there was room.
        """
        with self._lock:
            if not (at_once or self._may_enter(items, size)):
                self._waiters += 1
                try:
                    left_s = None if deadline is None else max(0.0, deadline - now_s())
                    if not self._changed.wait_for(lambda: self._may_enter(items, size), left_s):
                        return False
                finally:
                    self._waiters -= 1
            if self._is_closed:
                raise QueueClosed("the queue was closed; nothing was put")
            self.items += items
            self._bytes += size
            return True

    def leave(self, items: int, size: int) -> None:
        """These are settled."""
        with self._lock:
            self.items -= items
            self._bytes -= size
            if self._waiters and self._has_ample_room:
                self._changed.notify_all()

    def wait_empty(self, timeout_s: float) -> bool:
        """Until nothing is on its way any more; whether that came in ``timeout_s``."""
        with self._changed:
            self._waiters += 1
            try:
                return self._changed.wait_for(lambda: not self.items, timeout_s)
            finally:
                self._waiters -= 1

    def close(self) -> None:
        """Nobody enters any more; who waits to is told."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    @property
    def _has_ample_room(self) -> bool:
        """Whether an eighth is free: woken for each znode, those who wait would take the processor from those who send."""
        return 8 * self.items <= 7 * self._max_items and 8 * self._bytes <= 7 * self._max_bytes

    def _may_enter(self, items: int, size: int) -> bool:
        return (
            self._is_closed
            or not self.items
            or (self.items + items <= self._max_items and self._bytes + size <= self._max_bytes)
        )
