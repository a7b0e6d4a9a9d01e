"""Who consumes a queue, and how."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from leaderq.errors import ConfigurationError
from leaderq.queues.retrying import ErrorMode, RetryPolicy
from leaderq.queues.serializers import BYTES, QueueSerializer
from leaderq.zookeeper import SessionState

T = TypeVar("T")


class QueueConsumer(ABC, Generic[T]):
    """A consumer that also hears of the connection; where that is of no interest, any callable of the value will do."""

    @abstractmethod
    def consume(self, value: T) -> object:
        """Work on one value. Returning acknowledges it; raising has it tried again, or set aside."""

    def state_changed(self, state: SessionState) -> None:
        """The session's state changed; called on the queue's own thread, in order. Does nothing unless overridden."""


@dataclass(frozen=True)
class ConsumePlan(Generic[T]):
    """How a queue is consumed. At most one of ``consumer`` and ``consume_batch``; with neither, items are taken on request.

    ``batch_items``: as many values at most are given to ``consume_batch`` at once. ``concurrency``: as many items are worked on at a
    time, on as many threads (on ``executor``, if one is given). ``min_items_before_refresh``: priority queues only; after so many items
    of one listing, news of more urgent ones are heeded before each next.
    """

    serializer: QueueSerializer[T] = BYTES  # type: ignore[assignment]
    consumer: Callable[[T], object] | QueueConsumer[T] | None = None
    consume_batch: Callable[[Sequence[T]], object] | None = None
    batch_items: int = 100
    concurrency: int = 1
    executor: Executor | None = None
    error_mode: ErrorMode = ErrorMode.REQUEUE
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    min_items_before_refresh: int = 0

    def __post_init__(self) -> None:
        problems = []
        if self.consumer is not None and self.consume_batch is not None:
            problems.append("give either consumer or consume_batch, not both")
        given: object = self.consumer
        if not (given is None or callable(given) or isinstance(given, QueueConsumer)):
            problems.append(f"consumer={self.consumer!r} is neither a callable nor a QueueConsumer")
        if self.batch_items < 1 or self.concurrency < 1:
            problems.append(f"batch_items={self.batch_items!r}, concurrency={self.concurrency!r}: give 1 or more")
        if self.min_items_before_refresh < 0:
            problems.append(f"min_items_before_refresh={self.min_items_before_refresh!r}: give 0 or more")
        if problems:
            raise ConfigurationError(*problems)

    @property
    def on_value(self) -> Callable[[T], Any] | None:
        """The consumer as a callable."""
        return self.consumer.consume if isinstance(self.consumer, QueueConsumer) else self.consumer
