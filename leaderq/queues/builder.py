"""Curator's ``QueueBuilder``; the constructors take the same as keywords."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Generic, TypeVar

from leaderq.queues.consumers import ErrorMode, QueueConsumer
from leaderq.queues.recipes import (
    DistributedDelayQueue,
    DistributedIdQueue,
    DistributedPriorityQueue,
    DistributedQueue,
)
from leaderq.queues.serializers import BYTES, QueueSerializer
from leaderq.retrying import RetryPolicy
from leaderq.zookeeper import AnyClient

T = TypeVar("T")


class QueueBuilder(Generic[T]):
    """``QueueBuilder.builder(client, consumer, TEXT, "/queue").lock_path("/locks").build_queue()``.

    One builder can build several queues. What each setting means:
    :class:`~leaderq.queues.recipes.QueueRecipe`. Unlike Curator's, puts wait until they are stored,
    unless :meth:`put_in_background` is called.
    """

    def __init__(
        self,
        client: AnyClient,
        consumer: Callable[[T], object] | QueueConsumer[T] | None,
        serializer: QueueSerializer[T],
        path: str,
    ) -> None:
        self._client = client
        self._path = path
        self._keywords: dict[str, Any] = {"consumer": consumer, "serializer": serializer}

    @classmethod
    def builder(
        cls,
        client: AnyClient,
        consumer: Callable[[T], object] | QueueConsumer[T] | None = None,
        serializer: QueueSerializer[T] = BYTES,  # type: ignore[assignment]
        path: str = "",
    ) -> QueueBuilder[T]:
        """A builder of queues at ``path``; without a consumer items are taken on request."""
        return QueueBuilder(client, consumer, serializer, path)

    def lock_path(self, path: str) -> QueueBuilder[T]:
        return self._set("lock_path", path)

    def meta_path(self, path: str) -> QueueBuilder[T]:
        return self._set("meta_path", path)

    def max_items(self, count: int) -> QueueBuilder[T]:
        return self._set("max_items", count)

    def put_in_background(self, wanted: bool = True) -> QueueBuilder[T]:
        return self._set("put_in_background", wanted)

    def final_flush_s(self, seconds: float) -> QueueBuilder[T]:
        return self._set("final_flush_s", seconds)

    def executor(self, executor: Executor) -> QueueBuilder[T]:
        return self._set("executor", executor)

    def concurrency(self, count: int) -> QueueBuilder[T]:
        return self._set("concurrency", count)

    def consume_batch(
        self, consumer: Callable[[Sequence[T]], object], batch_items: int = 100
    ) -> QueueBuilder[T]:
        """Consume lists of up to that many values, in place of a consumer of single ones."""
        return self._set("consume_batch", consumer)._set("batch_items", batch_items)

    def claim_ahead(self, count: int) -> QueueBuilder[T]:
        return self._set("claim_ahead", count)

    def error_mode(self, mode: ErrorMode) -> QueueBuilder[T]:
        return self._set("error_mode", mode)

    def retry(self, policy: RetryPolicy) -> QueueBuilder[T]:
        return self._set("retry", policy)

    def compress(self, wanted: bool = True) -> QueueBuilder[T]:
        return self._set("compress", wanted)

    def name(self, name: str) -> QueueBuilder[T]:
        return self._set("name", name)

    def build_queue(self) -> DistributedQueue[T]:
        """A :class:`~leaderq.queues.DistributedQueue`, not started."""
        return DistributedQueue(self._client, self._path, **self._keywords)

    def build_id_queue(self) -> DistributedIdQueue[T]:
        """A :class:`~leaderq.queues.DistributedIdQueue`, not started."""
        return DistributedIdQueue(self._client, self._path, **self._keywords)

    def build_priority_queue(
        self, min_items_before_refresh: int = 0
    ) -> DistributedPriorityQueue[T]:
        """A :class:`~leaderq.queues.DistributedPriorityQueue`, not started."""
        more = {**self._keywords, "min_items_before_refresh": min_items_before_refresh}
        return DistributedPriorityQueue(self._client, self._path, **more)

    def build_delay_queue(self) -> DistributedDelayQueue[T]:
        """A :class:`~leaderq.queues.DistributedDelayQueue`, not started."""
        return DistributedDelayQueue(self._client, self._path, **self._keywords)

    def _set(self, name: str, value: Any) -> QueueBuilder[T]:
        self._keywords[name] = value
        return self
