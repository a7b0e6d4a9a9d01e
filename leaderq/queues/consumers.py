"""Who consumes a queue, and how.

Curator's ``BlockingQueueConsumer``, which acknowledges an item when the work on it is done, not
when it has reached this process.
"""

from __future__ import annotations

import math
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from leaderq.errors import ConfigurationError, QueueClosed
from leaderq.plain import require_plain_function
from leaderq.queues.serializers import BYTES, QueueSerializer
from leaderq.retrying import RetryPolicy
from leaderq.zookeeper import SessionState


class ErrorMode(Enum):
    """Where a failed item waits for its next attempt."""

    REQUEUE = "requeue"
    """At the tail of its kind, with its id, priority or due time (Curator loses these two)."""
    KEEP = "keep"
    """Where it is: this consumer hands out nothing behind it before it is done or set aside."""
    DELETE = "delete"
    """Nowhere: the error is logged, and the item is done with."""


T = TypeVar("T")


class QueueConsumer(ABC, Generic[T]):
    """A consumer that also hears of the connection; else any callable of the value will do."""

    @abstractmethod
    def consume(self, value: T) -> object:
        """Work on one value: return to acknowledge it; raise to have it retried or set aside."""

    def state_changed(self, state: SessionState) -> None:
        """The session's state changed; called on the queue's own thread, in order."""


@dataclass(frozen=True)
class QueueOptions(Generic[T]):
    """How a queue is put into and consumed; what each means says
    :class:`~leaderq.queues.QueueRecipe`. With neither ``consumer`` nor ``consume_batch`` items are
    taken on request.
    """

    serializer: QueueSerializer[T] = BYTES  # type: ignore[assignment]
    consumer: Callable[[T], object] | QueueConsumer[T] | None = None
    consume_batch: Callable[[Sequence[T]], object] | None = None
    max_items: int | None = None
    put_in_background: bool = False
    final_flush_s: float = 5.0
    executor: Executor | None = None
    concurrency: int | None = None
    batch_items: int = 100
    error_mode: ErrorMode = ErrorMode.REQUEUE
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    compress: bool = False
    name: str | None = None
    min_items_before_refresh: int = 0
    claim_ahead: int = 100

    def __post_init__(self) -> None:
        if self.consumer is not None:
            require_plain_function(self.on_value, "consumer")
        if self.consume_batch is not None:
            require_plain_function(self.consume_batch, "consume_batch")
        most, flush_s, ahead = self.max_items, self.final_flush_s, self.claim_ahead
        batch, width, refresh = self.batch_items, self.workers, self.min_items_before_refresh
        is_one = self.consumer is None or self.consume_batch is None
        is_of_threads = not isinstance(self.executor, ProcessPoolExecutor)
        ConfigurationError.unless(
            (is_one, "give either consumer or consume_batch, not both"),
            (
                is_of_threads,
                "executor is a ProcessPoolExecutor: items are acknowledged by the process that"
                " claimed them; give a ThreadPoolExecutor, whose functions may use a process pool",
            ),
            (batch >= 1, f"batch_items={batch!r}: give 1 or more"),
            (width >= 1, f"concurrency={width!r}: give 1 or more"),
            (most is None or most >= 1, f"max_items={most!r}: give 1 or more, or None"),
            (flush_s >= 0, f"final_flush_s={flush_s!r}: give 0 or more seconds"),
            (ahead >= 0, f"claim_ahead={ahead!r}: give 0 or more values"),
            (refresh >= 0, f"min_items_before_refresh={refresh!r}: give 0 or more"),
        )

    @property
    def workers(self) -> int:
        """How many items are worked on at a time: by default the executor's number of threads."""
        if self.concurrency is not None:
            return self.concurrency
        return int(getattr(self.executor, "_max_workers", 1))

    @property
    def on_value(self) -> Callable[[T], Any] | None:
        return self.consumer.consume if isinstance(self.consumer, QueueConsumer) else self.consumer


@dataclass(eq=False)
class _Entry(Generic[T]):
    """One value, from its arrival to its end."""

    value: T
    taker: int | None = None
    outcome: Future[None] = field(default_factory=Future)


class ConsumerClosed(QueueClosed):
    """A :class:`BlockingQueueConsumer` was closed before the work on an item was done."""


class BlockingQueueConsumer(QueueConsumer[T]):
    """Hands the items of a queue to threads that ask for them: :meth:`take`, then
    :meth:`task_done`.

    The queue works on an item until :meth:`task_done`; so it holds ``concurrency`` items here at a
    time (a keyword of the queue), and at most ``capacity`` of these not yet taken.

    *Guarantees:* with a lock path an item is acknowledged after :meth:`task_done`, not before; if
    this process dies earlier, another gets it. Nothing is refused when full: the queue waits
    (Curator's throws, and loses the item). *Not guaranteed* without a lock path: an item here is in
    no queue any more; what is not done when the queue is closed is lost.
    """

    def __init__(self, capacity: int | None = None) -> None:
        if capacity is not None and capacity < 1:
            raise ConfigurationError(f"capacity={capacity!r}: give 1 or more, or None for no bound")
        self._capacity = math.inf if capacity is None else capacity
        self._changed = threading.Condition()
        self._waiting: deque[_Entry[T]] = deque()
        self._taken: deque[_Entry[T]] = deque()
        self._is_closed = False

    def consume(self, value: T) -> None:
        """Called by the queue: offers ``value``, and returns when the work on it is done.

        :raises ConsumerClosed: closed first. Whatever :meth:`task_failed` was given.
        """
        entry = _Entry(value)
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or len(self._waiting) < self._capacity)
            if self._is_closed:
                raise ConsumerClosed("the queue was closed before this item was taken")
            self._waiting.append(entry)
            self._changed.notify_all()
        entry.outcome.result()

    def close(self) -> None:
        """Called by the queue when it closes: gives back what is here, and tells who waits."""
        with self._changed:
            self._is_closed = True
            left = [*self._waiting, *self._taken]
            self._waiting.clear()
            self._taken.clear()
            self._changed.notify_all()
        for entry in left:
            entry.outcome.set_exception(
                ConsumerClosed("the queue was closed before the work on this item was done")
            )

    def take(self, timeout_s: float | None = None) -> T | None:
        """The next value, or ``None`` if none comes within ``timeout_s`` seconds (``None``: wait
        until one does).

        :raises QueueClosed: the queue was closed.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._waiting, timeout_s)
            if not self._waiting:
                if self._is_closed:
                    raise QueueClosed("the queue was closed")
                return None
            return self._take().value

    def drain_to(self, target: list[T], max_items: int | None = None) -> int:
        """Append the values here to ``target``, at most ``max_items``; returns their number."""
        with self._changed:
            most = len(self._waiting) if max_items is None else min(max_items, len(self._waiting))
            taken = [self._take().value for _ in range(most)]
        target += taken
        return len(taken)

    def task_done(self) -> None:
        """The work on a value is done: the one that this thread took first, or, if it took none,
        that was taken first of all.

        :raises ValueError: none is being worked on.
        """
        self._end(None)

    def task_failed(self, error: BaseException) -> None:
        """As :meth:`task_done`, but it failed: error mode and retry policy decide about it."""
        self._end(error)

    def items(self) -> list[T]:
        """The values here that nobody has taken yet."""
        with self._changed:
            return [entry.value for entry in self._waiting]

    def size(self) -> int:
        """How many values are here that nobody has taken yet."""
        return len(self._waiting)

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
                raise ValueError(
                    "no value is being worked on: task_done() was called more often than take()"
                )
            me = threading.get_ident()
            entry = next((one for one in self._taken if one.taker == me), self._taken[0])
            self._taken.remove(entry)
        entry.outcome.set_result(None) if error is None else entry.outcome.set_exception(error)
