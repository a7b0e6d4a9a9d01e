"""Who consumes a queue, and how."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Generic, TypeVar

from leaderq.base.arguments import (
    at_least,
    instance,
    method_problem,
    require,
    unless,
    wanted,
)
from leaderq.base.timeouts import Deadline
from leaderq.engine.handlers import handler_problem
from leaderq.engine.serializers import BYTES, QueueSerializer, serializer_problem
from leaderq.errors import QueueClosed
from leaderq.threads import PerThread, Retry, primitives
from leaderq.zookeeper import SessionState
from leaderq.zookeeper.retrying import ITEM_RETRY


class ErrorMode(Enum):
    """Where a failed item waits for its next attempt."""

    REQUEUE = "requeue"
    """At the tail of its kind, with its id, priority or due time (Curator loses these two)."""
    KEEP = "keep"
    """In its place: this consumer begins nothing behind it before it is done or set aside."""
    DELETE = "delete"
    """Nowhere: the error is logged, and the item is removed."""


T = TypeVar("T")


class QueueConsumer(ABC, Generic[T]):
    """A consumer that also learns of the connection's state; any callable will do too."""

    @abstractmethod
    def consume(self, value: T) -> object:
        """Work on one value: return to acknowledge it; raise to have it retried or set aside."""

    def state_changed(self, state: SessionState) -> None:
        """The session's state changed; called on the queue's own thread, in order."""


@dataclass(frozen=True)
class QueueOptions(Generic[T]):
    """How a queue is put into and consumed; see :class:`~leaderq.queues.QueueRecipe`."""

    serializer: QueueSerializer[T] = BYTES  # type: ignore[assignment]
    consumer: Callable[[T], object] | QueueConsumer[T] | None = None
    consume_batch: Callable[[Sequence[T]], object] | None = None
    max_items: int | None = None
    put_in_background: bool = False
    final_flush_s: float = 5.0
    executor: primitives.Executor | None = None
    concurrency: int | None = None
    batch_items: int = 100
    error_mode: ErrorMode = ErrorMode.REQUEUE
    retry: Retry = ITEM_RETRY
    compress: bool = False
    name: str | None = None
    min_items_before_refresh: int = 0
    claim_ahead: int = 100

    def __post_init__(self) -> None:
        is_one = self.consumer is None or self.consume_batch is None
        is_of_threads = not isinstance(self.executor, primitives.ProcessPoolExecutor)
        why = "items are acknowledged by the process that claimed them; give a ThreadPoolExecutor"
        is_executor = self.executor is None or callable(getattr(self.executor, "submit", None))
        blocking = self.consumer if isinstance(self.consumer, BlockingQueueConsumer) else None
        is_open = blocking is None or not blocking.is_closed
        require(
            serializer_problem(self.serializer),
            method_problem("consumer", self.consumer, "state_changed")
            if isinstance(self.consumer, QueueConsumer)
            else None,
            instance("error_mode", self.error_mode, ErrorMode),
            instance("retry", self.retry, Retry),
            instance("name", self.name, str | None),
            wanted("executor", self.executor, is_executor, "an executor, or None"),
            unless(is_open, "the BlockingQueueConsumer was closed with its queue; make a new one"),
            handler_problem("consumer", self.on_value, or_none=self.consumer is None),
            handler_problem("consume_batch", self.consume_batch, or_none=True),
            unless(is_one, "give either consumer or consume_batch, not both"),
            unless(is_of_threads, f"executor is a ProcessPoolExecutor: {why}"),
            at_least("batch_items", self.batch_items, 1),
            at_least("concurrency", self.workers, 1),
            at_least("max_items", self.max_items, 1, or_none=""),
            at_least("final_flush_s", self.final_flush_s, 0, "seconds"),
            at_least("claim_ahead", self.claim_ahead, 0, "values"),
            at_least("min_items_before_refresh", self.min_items_before_refresh, 0),
        )

    @property
    def workers(self) -> int:
        """How many items are worked on at a time: by default the executor's number of threads."""
        if self.concurrency is not None:
            return self.concurrency
        return int(getattr(self.executor, "_max_workers", 1))

    @cached_property
    def on_value(self) -> Callable[[T], Any] | None:
        return self.consumer.consume if isinstance(self.consumer, QueueConsumer) else self.consumer


class WorkInHand:
    """What a worker's thread knows about the value that it passes to a consumer."""

    def __init__(self) -> None:
        self.may_be_begun: Callable[[], bool] = lambda: True


work_in_hand = PerThread(WorkInHand)


@dataclass(eq=False)
class _Entry(Generic[T]):
    """One value in a :class:`BlockingQueueConsumer`, from its arrival until it is done or
    released.
    """

    value: T
    may_be_begun: Callable[[], bool]
    taker: int | None = None
    outcome: primitives.Future[None] = field(default_factory=lambda: primitives.Future())


class ConsumerClosed(QueueClosed):
    """A :class:`BlockingQueueConsumer` released an item: it was closed before the work was done, or
    the item may be another consumer's."""


class BlockingQueueConsumer(QueueConsumer[T]):
    """Hands the items of a queue to threads that ask for them: :meth:`take`, then
    :meth:`task_done`.

    The queue works on an item until :meth:`task_done`; so at most ``concurrency`` items (a keyword
    of the queue) are here at a time, of which at most ``capacity`` are not yet taken.

    *Guarantees:* with a lock path an item is acknowledged after :meth:`task_done`, not before; if
    this process dies earlier, another gets it. When full, the queue waits (Curator's throws, and
    loses the item).

    *Not guaranteed* without a lock path: items that are not done when the queue is closed are lost.
    """

    def __init__(self, capacity: int | None = None) -> None:
        require(at_least("capacity", capacity, 1, or_none="for no bound"))
        self._capacity = math.inf if capacity is None else capacity
        self._changed = primitives.Condition()
        self._entries: list[_Entry[T]] = []  # in the order in which they came
        self.is_closed = False

    def consume(self, value: T) -> None:
        """Called by the queue: returns when the work on ``value`` is done, or raises the error that
        :meth:`task_failed` was given.
        """
        entry = _Entry(value, work_in_hand.value.may_be_begun)
        with self._changed:
            self._changed.wait_for(lambda: self.is_closed or self.size() < self._capacity)
            if self.is_closed:
                raise ConsumerClosed("the queue was closed before this item was taken")
            self._entries.append(entry)
            self._changed.notify_all()
        entry.outcome.result()

    def close(self) -> None:
        """Called by the queue when it closes: releases the values here, wakes waiting threads."""
        with self._changed:
            self.is_closed = True
            left, self._entries = self._entries, []
            self._changed.notify_all()
        closed = ConsumerClosed("the queue was closed before the work on this item was done")
        for entry in left:
            entry.outcome.set_exception(closed)

    def take(self, timeout_s: float | None = None) -> T | None:
        """Return the next value, or ``None`` if none comes within ``timeout_s`` seconds
        (``timeout_s=None``: wait until one comes).

        :raises QueueClosed: the queue was closed.
        """
        wait_s = Deadline.asked(timeout_s, None).left_s(primitives.TIMEOUT_MAX)
        with self._changed:
            self._changed.wait_for(lambda: self.is_closed or self._waiting(), wait_s)
            if self.is_closed:
                raise QueueClosed("the queue was closed")
            taken = self._take(1)
            return taken[0] if taken else None

    def drain_to(self, target: list[T], max_items: int | None = None) -> int:
        """Append the values here to ``target``, at most ``max_items``; returns their number."""
        require(
            wanted("target", target, hasattr(target, "extend"), "a list"),
            at_least("max_items", max_items, 0, or_none="for all"),
        )
        with self._changed:
            taken = self._take(max_items)
        target.extend(taken)
        return len(taken)

    def task_done(self) -> None:
        """Report that the work on a value is done: the oldest value that this thread took or,
        without one, the oldest that any thread took.

        :raises ValueError: no value is being worked on.
        """
        self._end(None)

    def task_failed(self, error: BaseException) -> None:
        """As :meth:`task_done`, for work that failed: error mode and retry policy decide what
        follows.

        :raises ConfigurationError: ``error`` is not an exception.
        """
        require(instance("error", error, BaseException))
        self._end(error)

    def items(self) -> list[T]:
        """The values here that nobody has taken yet."""
        return [entry.value for entry in self._entries if entry.taker is None]

    def size(self) -> int:
        """How many values are here that nobody has taken yet."""
        return len(self.items())

    def _take(self, most: int | None) -> list[T]:
        taken = self._waiting()[:most]
        for entry in taken:
            entry.taker = primitives.get_ident()
        self._changed.notify_all()
        return [entry.value for entry in taken]

    def _waiting(self) -> list[_Entry[T]]:
        """Return the entries that nobody has taken, after releasing those that another consumer may
        have by now.
        """
        for entry in [one for one in self._entries if one.taker is None]:
            if not entry.may_be_begun():
                self._entries.remove(entry)
                entry.outcome.set_exception(ConsumerClosed("another may have this item by now"))
        return [entry for entry in self._entries if entry.taker is None]

    def _end(self, error: BaseException | None) -> None:
        with self._changed:
            taken = [entry for entry in self._entries if entry.taker is not None]
            if not taken:
                if self.is_closed:
                    raise QueueClosed("the queue was closed; the item was released")
                why = "no value is being worked on: task_done() was called more often than take()"
                raise ValueError(why)
            me = primitives.get_ident()
            entry = next((one for one in taken if one.taker == me), taken[0])
            self._entries.remove(entry)
        entry.outcome.set_result(None) if error is None else entry.outcome.set_exception(error)
