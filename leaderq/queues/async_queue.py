"""The queues for programs on asyncio: see :mod:`leaderq.engine.async_face`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from leaderq.async_term import AsyncTerm
from leaderq.base.arguments import at_least, require, wanted
from leaderq.engine.async_face import AsyncFace, AsyncTaken
from leaderq.errors import ConfigurationError, QueueClosed
from leaderq.queues.consuming import Item
from leaderq.queues.recipes import QueueRecipe
from leaderq.queues.simple_queue import SimpleDistributedQueue
from leaderq.zookeeper import Operation

if TYPE_CHECKING:
    from leaderq.term import Term

T = TypeVar("T")


class AsyncItem(AsyncTaken[Item[T]], Generic[T]):
    """An :class:`~leaderq.queues.Item` for a program on asyncio; ``async with`` acknowledges the
    item at a clean end, reports an error as a failed attempt, and releases the item if the task is
    cancelled.

    ``value``, ``name``, ``attempt`` and ``enqueued`` are those of the item; ``ack``, ``requeue``
    and ``fail`` are the item's methods as coroutines.
    """

    def __init__(self, item: Item[T], start: Any) -> None:
        super().__init__(item, start)
        self.value, self.name, self.attempt = item.value, item.name, item.attempt
        self.enqueued = item.enqueued

    async def ack(
        self, ops: Iterable[Operation] = (), *, term: Term | AsyncTerm | None = None
    ) -> list[Any] | None:
        fence = term._term if isinstance(term, AsyncTerm) else term
        return await self._settle(self._taken.ack, ops, term=fence)

    async def requeue(self, delay_s: float = 0.0) -> None:
        await self._settle(self._taken.requeue, delay_s)

    async def fail(self, error: BaseException) -> None:
        await self._settle(self._taken.fail, error)


class AsyncQueue(AsyncFace, Generic[T]):
    """Any of the queues, not started, for a program on asyncio: ``async with
    AsyncQueue(DistributedQueue(session, "/q")) as queue: await queue.put(b"item")``. With a simple
    queue, :meth:`put` offers an item, and an item that was taken can be released or requeued at the
    end.

    ``takers``: how many tasks may wait for an item at a time, each on a thread of its own; further
    tasks wait for their turn. A queue with a consumer can only put. *Guarantees:* those of the
    queue; no item is lost or doubled by a task that is cancelled. *Not guaranteed:* that a put that
    was cancelled was not stored.

    :raises ConfigurationError: ``takers`` is less than 1.
    """

    def __init__(self, queue: QueueRecipe[T] | SimpleDistributedQueue, *, takers: int = 8) -> None:
        names = ("put", "put_many", "take")
        if isinstance(queue, SimpleDistributedQueue):
            names = ("offer", "offer_many", "take_item")
        is_one = all(hasattr(queue, name) for name in names)
        require(
            wanted("queue", queue, is_one, "one of the queues, not started"),
            at_least("takers", takers, 1),
        )
        super().__init__("queue", takers)
        self._put, self._put_many, self._take = (getattr(queue, name) for name in names)
        self.queue = queue
        """The queue that does the work: for methods that never wait, such as ``pause`` or ``path``.
        """

    async def __aenter__(self) -> AsyncQueue[T]:
        try:
            await self._write(self.queue.start)
        except asyncio.CancelledError:  # it starts all the same, and nobody would close it
            self._closing()
            raise
        return self

    async def put(self, *item: Any, **options: Any) -> str | bool | None:
        """As the queue's own ``put`` or ``offer``: item, id, priority, due time, ``timeout_s``."""
        stored: str | bool | None = await self._write(self._put, *item, **options)
        return stored

    async def put_many(self, *items: Any, **options: Any) -> int | None:
        """As the queue's own ``put_many`` or ``offer_many``."""
        stored: int | None = await self._write(self._put_many, *items, **options)
        return stored

    async def cancel(self, name: str) -> bool:
        """As :meth:`QueueRecipe.cancel`; a simple queue raises ``ConfigurationError``."""
        if isinstance(self.queue, SimpleDistributedQueue):
            raise ConfigurationError("a simple queue does not return names that could be cancelled")
        return await self._write(self.queue.cancel, name)

    @overload
    async def take(self, timeout_s: None = None) -> AsyncItem[T]: ...

    @overload
    async def take(self, timeout_s: float) -> AsyncItem[T] | None: ...

    async def take(self, timeout_s: float | None = None) -> AsyncItem[T] | None:
        """As :meth:`QueueRecipe.take`."""
        found = await self._taken(self._take_one, timeout_s)
        return AsyncItem(found[0], self._start) if found else None

    def _take_one(self, timeout_s: float) -> list[Item[T]]:
        item = self._take(timeout_s)
        return [] if item is None else [item]

    async def __aiter__(self) -> AsyncIterator[AsyncItem[T]]:
        """Iterate over the items until the queue is closed. The caller settles each item."""
        while True:
            try:
                item = await self.take()
            except QueueClosed:
                if not (self._is_closed or self.queue._is_closed):
                    raise
                return
            yield item
