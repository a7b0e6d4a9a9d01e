"""Curator's ``DistributedDelayQueue``: items are given out when they are due."""

from __future__ import annotations

import time
from collections.abc import Iterable
from datetime import datetime
from typing import ClassVar, TypeVar

from leaderq.errors import ConfigurationError
from leaderq.queues.recipe import Recipe
from leaderq.queues.wire.kinds import Kind
from leaderq.queues.wire.names import prefix_for

T = TypeVar("T")


class DistributedDelayQueue(Recipe[T]):
    """A queue in ZooKeeper whose items wait until they are due.

    *Guarantees:* as :class:`~leaderq.queues.DistributedQueue` about storing and losing. No item is given out before it is due, by the clock
    of the consumer's host. One consumer with ``concurrency=1`` begins items by due time, equal ones in the order they were stored in
    (Curator has no order among those). A failed item that is requeued keeps its due time.
    *Not guaranteed:* that the clocks of the hosts agree: a difference shifts delivery by as much. That a Java consumer keeps the due time
    of what it requeues: it is due at once then.

    Keywords: see :class:`~leaderq.queues.recipe.Recipe`.
    """

    KIND: ClassVar[Kind] = Kind.DELAY

    def put(
        self,
        item: T,
        *,
        delay_s: float | None = None,
        due: datetime | float | None = None,
        timeout_s: float | None = None,
    ) -> bool:
        """Put ``item``, due in ``delay_s`` seconds, or at ``due``: a ``datetime`` (without a zone: local time), or seconds since 1970.
        With neither it is due now. Otherwise as :meth:`DistributedQueue.put() <leaderq.queues.DistributedQueue.put>`.

        :raises ConfigurationError: both are given, or a delay below 0, or a time before 1970.
        """
        return self._putter.put(item, _prefix(delay_s, due), timeout_s=timeout_s)

    def put_multi(
        self,
        items: Iterable[T],
        *,
        delay_s: float | None = None,
        due: datetime | float | None = None,
        timeout_s: float | None = None,
    ) -> bool:
        """Put all ``items`` as one znode, due at one time."""
        return self._putter.put_multi(items, _prefix(delay_s, due), timeout_s=timeout_s)

    def put_many(
        self,
        items: Iterable[T],
        *,
        delay_s: float | None = None,
        due: datetime | float | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Put each of ``items`` as a znode of its own, all due at one time; see
        :meth:`DistributedQueue.put_many() <leaderq.queues.DistributedQueue.put_many>`."""
        return self._putter.put_many(items, _prefix(delay_s, due), timeout_s=timeout_s)


def _prefix(delay_s: float | None, due: datetime | float | None) -> str:
    return prefix_for(Kind.DELAY, due_ms=due_ms(delay_s=delay_s, due=due, now_s=time.time()))


def due_ms(*, delay_s: float | None, due: datetime | float | None, now_s: float) -> int:
    """The due time in milliseconds since the epoch; pure.

    :raises ConfigurationError: see :meth:`DistributedDelayQueue.put`.
    """
    if due is not None:
        if delay_s is not None:
            raise ConfigurationError(f"delay_s={delay_s!r} and due={due!r}: give one of them")
        return round((due.timestamp() if isinstance(due, datetime) else due) * 1000)
    if delay_s is not None and not delay_s >= 0:
        raise ConfigurationError(f"delay_s={delay_s!r}: give 0 or more seconds")
    return round((now_s + (delay_s or 0.0)) * 1000)
