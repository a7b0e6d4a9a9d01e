"""The queues for programs on asyncio. The queue itself does the work, on threads, so that the loop
is never kept waiting. What happens when a task is cancelled while it waits:

* **a take**: an item that has come meanwhile is released, and no attempt is counted;
* **a put**: it is not sent, or it is stored once; nobody is told which;
* **an acknowledgement, a failure, a requeue**: it is carried out all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from leaderq import clock
from leaderq.arguments import at_least, require
from leaderq.errors import ConfigurationError, QueueClosed
from leaderq.queues.consuming import Item
from leaderq.queues.recipes import QueueRecipe
from leaderq.queues.simple_queue import SimpleDistributedQueue
from leaderq.threads import primitives
from leaderq.zookeeper import Operation

if TYPE_CHECKING:
    from leaderq.term import Term

T = TypeVar("T")
R = TypeVar("R")

_SLICE_S = 0.2
"""How soon a cancelled take is over on its thread."""


class AsyncItem(Generic[T]):
    """An :class:`~leaderq.queues.Item` for a program on asyncio; ``async with`` acknowledges it at
    a clean end, and after an error has it tried again. After a cancelled task it is released.

    ``value``, ``name``, ``attempt`` and ``enqueued`` are those of the item; ``ack``, ``requeue``
    and ``fail`` are its methods, to be awaited.
    """

    def __init__(self, item: Item[T], run: Callable[..., Any]) -> None:
        self._item = item
        self._run_job = run
        self._is_settling = False
        self.value, self.name, self.attempt = item.value, item.name, item.attempt
        self.enqueued = item.enqueued

    @property
    def is_settled(self) -> bool:
        """Whether it was acknowledged or released, or will be although the task was cancelled."""
        return self._is_settling or self._item.is_settled

    async def _run(self, job: Callable[[], Any]) -> Any:
        self._is_settling = True

        def settle() -> Any:
            try:
                return job()
            finally:
                self._is_settling = False

        return await self._run_job(settle)

    async def ack(
        self, ops: Iterable[Operation] = (), *, term: Term | None = None
    ) -> list[Any] | None:
        done: list[Any] | None = await self._run(partial(self._item.ack, ops, term=term))
        return done

    async def requeue(self, delay_s: float = 0.0) -> None:
        await self._run(partial(self._item.requeue, delay_s))

    async def fail(self, error: BaseException) -> None:
        await self._run(partial(self._item.fail, error))

    async def __aenter__(self) -> AsyncItem[T]:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self.is_settled:
            return
        if isinstance(error, asyncio.CancelledError):
            self._item.give_back()
        elif error is not None:
            await self.fail(error)
        else:
            await self.ack()

    def __repr__(self) -> str:
        return f"Async{self._item!r}"


class AsyncQueue(Generic[T]):
    """Any of the queues, not started, for a program on asyncio: ``async with
    AsyncQueue(DistributedQueue(session, "/q")) as queue: await queue.put(b"item")``. A simple queue
    offers what is put; what is taken from it can be released, or be put at the end again.

    ``takers``: that many tasks may wait for an item at a time, each on a thread; others wait for
    their turn. A queue with a consumer only puts. *Guarantees:* those of the queue; no item is lost
    or doubled by a task that is cancelled. *Not guaranteed:* that a put that was cancelled was not
    stored.

    :raises ConfigurationError: ``takers`` is less than 1.
    """

    def __init__(self, queue: QueueRecipe[T] | SimpleDistributedQueue, *, takers: int = 8) -> None:
        require(at_least("takers", takers, 1))
        names = ("put", "put_many", "take")
        if isinstance(queue, SimpleDistributedQueue):
            names = ("offer", "offer_many", "take_item")
        self._put, self._put_many, self._take = (getattr(queue, name) for name in names)
        self.queue = queue
        """The queue that does the work: for methods that never wait, such as ``pause`` or ``path``.
        """
        self._takes = primitives.ThreadPoolExecutor(takers, "leaderq-queue-take")
        self._writes = primitives.ThreadPoolExecutor(8, "leaderq-queue-write")
        self._is_closed = False

    async def __aenter__(self) -> AsyncQueue[T]:
        try:
            await self._write(self.queue.start)
        except asyncio.CancelledError:  # it starts all the same, and nobody would close it
            self._is_closed = True
            self._writes.submit(self.queue.close)
            self._shut_down()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """As :meth:`QueueRecipe.close`; may be called again."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            await self._write(self.queue.close)
        finally:
            self._shut_down()

    def _shut_down(self) -> None:
        self._takes.shutdown(wait=False)
        self._writes.shutdown(wait=False)

    async def put(self, *item: Any, **options: Any) -> str | bool | None:
        """As the queue's own ``put`` or ``offer``: item, id, priority, due time, ``timeout_s``."""
        stored: str | bool | None = await self._write(partial(self._put, *item, **options))
        return stored

    async def put_many(self, *items: Any, **options: Any) -> int | None:
        """As the queue's own ``put_many`` or ``offer_many``."""
        stored: int | None = await self._write(partial(self._put_many, *items, **options))
        return stored

    async def cancel(self, name: str) -> bool:
        """As :meth:`QueueRecipe.cancel`; a simple queue raises ``ConfigurationError``."""
        if isinstance(self.queue, SimpleDistributedQueue):
            raise ConfigurationError("a simple queue does not return names that could be cancelled")
        return await self._write(partial(self.queue.cancel, name))

    @overload
    async def take(self, timeout_s: None = None) -> AsyncItem[T]: ...

    @overload
    async def take(self, timeout_s: float) -> AsyncItem[T] | None: ...

    async def take(self, timeout_s: float | None = None) -> AsyncItem[T] | None:
        """As :meth:`QueueRecipe.take`."""
        end_s = None if timeout_s is None else clock.now_s() + timeout_s
        while True:
            if self._is_closed:
                raise QueueClosed("the queue was closed")
            left_s = _SLICE_S if end_s is None else min(_SLICE_S, max(0.0, end_s - clock.now_s()))
            taking: primitives.Future[Item[T] | None] = self._takes.submit(self._take, left_s)
            try:
                item = await asyncio.wrap_future(taking)
            except asyncio.CancelledError:
                taking.add_done_callback(_release)
                raise
            if item is not None:
                return AsyncItem(item, self._write)
            if end_s is not None and clock.now_s() >= end_s:
                return None

    async def __aiter__(self) -> AsyncIterator[AsyncItem[T]]:
        """The items, until the queue is closed; settle each."""
        while True:
            try:
                item = await self.take()
            except QueueClosed:
                return
            yield item

    async def _write(self, job: Callable[[], R]) -> R:
        return await asyncio.shield(asyncio.wrap_future(self._writes.submit(job)))


def _release(taking: primitives.Future[Item[Any] | None]) -> None:
    if not taking.cancelled() and taking.exception() is None and (item := taking.result()):
        item.give_back()
