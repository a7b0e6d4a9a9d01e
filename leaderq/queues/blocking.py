"""Curator's ``BlockingQueueConsumer``, which acknowledges an item when the work on it is done, not when it has reached this process."""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

from leaderq.clock import now_s
from leaderq.errors import ConfigurationError, QueueClosed
from leaderq.queues.consumer import QueueConsumer

T = TypeVar("T")


class _Entry(Generic[T]):
    """One value, from its arrival to its end."""

    __slots__ = ("error", "is_over", "taker", "value")

    def __init__(self, value: T) -> None:
        self.value = value
        self.taker: int | None = None
        self.is_over = threading.Event()
        self.error: BaseException | None = None


class BlockingQueueConsumer(QueueConsumer[T]):
    """Hands the items of a queue to threads that ask for them: :meth:`take`, then :meth:`task_done`.

    The queue works on an item until :meth:`task_done`; so it holds ``concurrency`` items here at a time (a keyword of the queue), and
    at most ``capacity`` of these not yet taken.

    *Guarantees:* with a lock path an item is acknowledged after :meth:`task_done`, not before; if this process dies earlier, another
    gets it. Nothing is refused when full: the queue waits (Curator's throws, and loses the item).
    *Not guaranteed* without a lock path: an item here is in no queue any more; what is not done when the queue is closed is lost.
    """

    def __init__(self, capacity: int | None = None) -> None:
        if capacity is not None and capacity < 1:
            raise ConfigurationError(f"capacity={capacity!r}: give 1 or more, or None for no bound")
        self._capacity = capacity
        self._changed = threading.Condition()
        self._waiting: deque[_Entry[T]] = deque()
        self._taken: deque[_Entry[T]] = deque()
        self._is_closed = False

    # -- for the queue --------------------------------------------------------------------------------------------------

    def consume(self, value: T) -> None:
        """Called by the queue: offers ``value``, and returns when the work on it is done.

        :raises QueueClosed: closed first. Whatever :meth:`task_failed` was given.
        """
        entry = _Entry(value)
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or not self._is_full())
            if self._is_closed:
                raise QueueClosed("the queue was closed before this item was taken")
            self._waiting.append(entry)
            self._changed.notify_all()
        entry.is_over.wait()
        if entry.error is not None:
            raise entry.error

    def close(self) -> None:
        """Called by the queue when it closes: what is here is given back, and whoever waits is told."""
        with self._changed:
            self._is_closed = True
            left = [*self._waiting, *self._taken]
            self._waiting.clear()
            self._taken.clear()
            self._changed.notify_all()
        for entry in left:
            entry.error = QueueClosed("the queue was closed before the work on this item was done")
            entry.is_over.set()

    # -- for who does the work --------------------------------------------------------------------------------------------

    def take(self, timeout_s: float | None = None) -> T | None:
        """The next value, or ``None`` if none comes within ``timeout_s`` seconds (``None``: wait until one does).

        :raises QueueClosed: the queue was closed.
        """
        deadline = None if timeout_s is None else now_s() + timeout_s
        with self._changed:
            self._changed.wait_for(
                lambda: self._is_closed or self._waiting, None if deadline is None else max(0.0, deadline - now_s())
            )
            if not self._waiting:
                if self._is_closed:
                    raise QueueClosed("the queue was closed")
                return None
            return self._take().value

    def drain_to(self, target: list[T], max_items: int | None = None) -> int:
        """Append all values here to ``target``, ``max_items`` at most, without waiting; gives their number."""
        count = 0
        with self._changed:
            while self._waiting and (max_items is None or count < max_items):
                target.append(self._take().value)
                count += 1
        return count

    def task_done(self) -> None:
        """The work on a value is done: the one that this thread took first, or, if it took none, that was taken first of all.

        :raises ValueError: none is being worked on.
        """
        self._end(None)

    def task_failed(self, error: BaseException) -> None:
        """As :meth:`task_done`, but the work failed: the queue's error mode and retry policy decide what becomes of the item."""
        self._end(error)

    def items(self) -> list[T]:
        """The values here that nobody has taken yet."""
        with self._changed:
            return [entry.value for entry in self._waiting]

    def size(self) -> int:
        """How many values are here that nobody has taken yet."""
        return len(self._waiting)

    def _is_full(self) -> bool:
        return self._capacity is not None and len(self._waiting) >= self._capacity

    def _take(self) -> _Entry[T]:
        entry = self._waiting.popleft()
        entry.taker = threading.get_ident()
        self._taken.append(entry)
        self._changed.notify_all()
        return entry

    def _end(self, error: BaseException | None) -> None:
        with self._changed:
            if not self._taken:
                if self._is_closed:
                    raise QueueClosed("the queue was closed; the item was given back")
                raise ValueError("no value is being worked on: task_done() was called more often than take()")
            me = threading.get_ident()
            entry = next((one for one in self._taken if one.taker == me), self._taken[0])
            self._taken.remove(entry)
        entry.error = error
        entry.is_over.set()
