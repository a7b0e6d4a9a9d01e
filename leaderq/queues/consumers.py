"""Who consumes a queue, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeVar

from leaderq.base.arguments import at_least, require, unless
from leaderq.engine.handlers import handler_problem
from leaderq.engine.serializers import BYTES, QueueSerializer
from leaderq.threads import Retry
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


@dataclass(frozen=True)
class QueueOptions(Generic[T]):
    """How a queue is put into and consumed; see :class:`~leaderq.queues.QueueRecipe`."""

    serializer: QueueSerializer[T] = BYTES  # type: ignore[assignment]
    consumer: Callable[[T], object] | None = None
    consume_batch: Callable[[Sequence[T]], object] | None = None
    max_items: int | None = None
    put_in_background: bool = False
    final_flush_s: float = 5.0
    concurrency: int = 1
    batch_items: int = 100
    error_mode: ErrorMode = ErrorMode.REQUEUE
    retry: Retry = ITEM_RETRY
    compress: bool = False
    name: str | None = None
    claim_ahead: int = 100

    def __post_init__(self) -> None:
        is_one = self.consumer is None or self.consume_batch is None
        require(
            handler_problem("consumer", self.consumer, or_none=True),
            handler_problem("consume_batch", self.consume_batch, or_none=True),
            unless(is_one, "give either consumer or consume_batch, not both"),
            at_least("batch_items", self.batch_items, 1),
            at_least("concurrency", self.concurrency, 1),
            at_least("max_items", self.max_items, 1, or_none=""),
            at_least("final_flush_s", self.final_flush_s, 0, "seconds"),
            at_least("claim_ahead", self.claim_ahead, 0, "values"),
        )
