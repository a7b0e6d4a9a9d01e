"""Dyno queues for programs on asyncio: see :mod:`leaderq.engine.async_face`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from leaderq.base.arguments import Seconds, at_least, instance, plain_function, require
from leaderq.dyno.delivery import Delivery, Receipt
from leaderq.dyno.message import DynoMessage
from leaderq.dyno.queue import DynoQueue
from leaderq.engine.async_face import AsyncFace, AsyncTaken, outcome_of
from leaderq.zookeeper import Operation

R = TypeVar("R")


class AsyncDelivery(AsyncTaken[Delivery]):
    """A :class:`~leaderq.dyno.Delivery`, settled by awaiting methods of the same names.

    ``async with`` acknowledges it at the end of the block, nacks it if the block raises, and
    releases it if the task is cancelled.
    """

    def __init__(self, delivery: Delivery, start: Any) -> None:
        super().__init__(delivery, start)
        self.delivery = delivery
        self.id = delivery.id
        self.headers = delivery.headers

    async def payload(self) -> bytes:
        """Return :attr:`Delivery.payload`; a payload in the body store is read on a thread."""
        if self.delivery.frame.body is None:
            return self.delivery.payload
        return await outcome_of(self._start(lambda: self.delivery.payload))

    @property
    def receipt(self) -> Receipt:
        return self.delivery.receipt

    async def ack(self, also: Sequence[Operation] = ()) -> None:
        await self._settle(self.delivery.ack, also)

    async def nack(
        self, error: BaseException | str | None = None, *, delay_s: Seconds | None = None
    ) -> None:
        await self._settle(self.delivery.nack, error, delay_s=delay_s)

    async def release(self) -> None:
        await self._settle(self.delivery.release)

    async def postpone(self, delay_s: Seconds) -> None:
        await self._settle(self.delivery.postpone, delay_s)

    async def kill(self, reason: str = "killed") -> None:
        await self._settle(self.delivery.kill, reason)

    async def extend(self, lease_s: Seconds | None = None) -> None:
        await outcome_of(self._start(partial(self.delivery.extend, lease_s)))


class AsyncDynoQueue(AsyncFace):
    """``async with AsyncDynoQueue(DynoQueue(session, "/jobs")) as queue``.

    ``poppers``: how many tasks may wait in ``pop`` at a time, each on a thread of its own; further
    tasks wait for their turn.

    *Guarantees:* those of the queue; no message is lost, or kept from others for longer than a
    moment, by a task that is cancelled. *Not guaranteed:* that a write which a cancelled task had
    begun did not happen.
    """

    def __init__(self, queue: DynoQueue, *, poppers: int = 8) -> None:
        require(instance("queue", queue, DynoQueue), at_least("poppers", poppers, 1))
        super().__init__("dyno", poppers)
        self.queue = queue

    async def __aenter__(self) -> AsyncDynoQueue:
        return self

    async def push(self, messages: DynoMessage | Iterable[DynoMessage]) -> list[str]:
        return await self._write(self.queue.push, messages)

    async def ensure(self, message: DynoMessage) -> bool:
        return await self._write(self.queue.ensure, message)

    async def pop(
        self, most: int = 1, timeout_s: Seconds | None = 0.0, *, lease_s: Seconds | None = None
    ) -> list[AsyncDelivery]:
        """As :meth:`DynoQueue.pop`, but returns as soon as there is one message."""
        found = await self._taken(partial(self.queue.pop, most, lease_s=lease_s), timeout_s)
        return [AsyncDelivery(one, self._start) for one in found]

    async def __aiter__(self) -> AsyncIterator[AsyncDelivery]:
        """Iterate for ever over the messages, in the order in which they are popped."""
        while True:
            for one in await self.pop(1, None):
                yield one

    async def run(self, call: Callable[[DynoQueue], R]) -> R:
        """Call any other method of the queue on a thread: ``await queue.run(DynoQueue.size)``."""
        require(plain_function("call", call))
        return await self._write(call, self.queue)
