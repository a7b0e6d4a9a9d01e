"""Curator's ``DistributedPriorityQueue``: the lowest priority number first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, TypeVar

from leaderq.queues.recipe import Recipe
from leaderq.queues.wire.kinds import Kind
from leaderq.queues.wire.names import prefix_for

T = TypeVar("T")


class DistributedPriorityQueue(Recipe[T]):
    """A queue in ZooKeeper, by priority: any 32-bit whole number, lower first; equal ones first in, first out.

    *Guarantees:* as :class:`~leaderq.queues.DistributedQueue` about storing and losing. One consumer with ``concurrency=1`` begins the
    most urgent of the items that it knows of; it hears of new ones at once, and heeds them before each next item
    (``min_items_before_refresh=n``: after n items of one listing). A failed item that is requeued keeps its priority.
    *Not guaranteed:* that an item stored this moment is known already; that a Java consumer keeps the priority of what it requeues (it
    makes it more urgent than all others); an order among several consumers.

    Keywords: see :class:`~leaderq.queues.recipe.Recipe`; also ``min_items_before_refresh`` (default 0).
    """

    KIND: ClassVar[Kind] = Kind.PRIORITY

    def put(self, item: T, priority: int, *, timeout_s: float | None = None) -> bool:
        """Put ``item`` with this priority. Otherwise as :meth:`DistributedQueue.put() <leaderq.queues.DistributedQueue.put>`.

        :raises ConfigurationError: ``priority`` is no 32-bit whole number.
        """
        return self._putter.put(item, prefix_for(Kind.PRIORITY, priority=priority), timeout_s=timeout_s)

    def put_multi(self, items: Iterable[T], priority: int, *, timeout_s: float | None = None) -> bool:
        """Put all ``items`` as one znode with this priority."""
        return self._putter.put_multi(items, prefix_for(Kind.PRIORITY, priority=priority), timeout_s=timeout_s)

    def put_many(self, items: Iterable[T], priority: int, *, timeout_s: float | None = None) -> int:
        """Put each of ``items`` as a znode of its own, all with this priority; see
        :meth:`DistributedQueue.put_many() <leaderq.queues.DistributedQueue.put_many>`."""
        return self._putter.put_many(items, prefix_for(Kind.PRIORITY, priority=priority), timeout_s=timeout_s)
