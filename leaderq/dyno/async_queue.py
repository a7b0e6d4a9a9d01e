"""A Dyno queue in the hands of a program on asyncio."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from functools import partial
from typing import Any, TypeVar

from leaderq.arguments import Seconds, at_least, in_seconds, require
from leaderq.dyno.delivery import Delivery, Receipt
from leaderq.dyno.message import DynoMessage
from leaderq.dyno.queue import DynoQueue
from leaderq.errors import LeaderqError, QueueClosed
from leaderq.threads import primitives
from leaderq.timeouts import Deadline
from leaderq.zookeeper import Operation

log = logging.getLogger(__name__)
R = TypeVar("R")
_SLICE_S = 0.2
"""How soon a cancelled pop is over on its thread."""


class AsyncDelivery:
    """A :class:`~leaderq.dyno.Delivery`, settled by awaiting methods of the same names.

    ``async with`` acknowledges it at the end of the block, nacks it if the block raises, and
    releases it if the task is cancelled.
    """

    def __init__(self, delivery: Delivery, run: Callable[..., Any]) -> None:
        self.delivery = delivery
        self.id = delivery.id
        self.headers = delivery.headers
        self._run = run

    def __repr__(self) -> str:
        return f"Async{self.delivery!r}"

    async def payload(self) -> bytes:
        """As :attr:`Delivery.payload`; a large one is read on a thread."""
        if self.delivery.frame.body is None:
            return self.delivery.payload
        payload: bytes = await self._run(lambda: self.delivery.payload)
        return payload

    @property
    def receipt(self) -> Receipt:
        return self.delivery.receipt

    async def ack(self, also: Sequence[Operation] = ()) -> None:
        await self._run(partial(self.delivery.ack, also))

    async def nack(
        self, error: BaseException | str | None = None, *, delay_s: Seconds | None = None
    ) -> None:
        await self._run(partial(self.delivery.nack, error, delay_s=delay_s))

    async def release(self) -> None:
        await self._run(self.delivery.release)

    async def postpone(self, delay_s: Seconds) -> None:
        await self._run(partial(self.delivery.postpone, delay_s))

    async def kill(self, reason: str = "killed") -> None:
        await self._run(partial(self.delivery.kill, reason))

    async def extend(self, lease_s: Seconds | None = None) -> None:
        await self._run(partial(self.delivery.extend, lease_s))

    async def __aenter__(self) -> AsyncDelivery:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        if not self.delivery.is_settled:
            await self._run(partial(self.delivery.__exit__, *raised))


class AsyncDynoQueue:
    """``async with AsyncDynoQueue(DynoQueue(session, "/jobs")) as queue``.

    ``poppers``: that many tasks may wait in ``pop`` at a time, each on a thread; others wait for
    their turn.

    *Guarantees:* those of the queue; no message is lost, or kept from others for longer than a
    moment, by a task that is cancelled. *Not guaranteed:* that a write which a cancelled task had
    begun did not happen.
    """

    def __init__(self, queue: DynoQueue, *, poppers: int = 8) -> None:
        require(at_least("poppers", poppers, 1))
        self.queue = queue
        self._is_closed = False
        self._pops = primitives.ThreadPoolExecutor(poppers, "leaderq-dyno-pop")
        self._writes = primitives.ThreadPoolExecutor(8, "leaderq-dyno-write")

    async def __aenter__(self) -> AsyncDynoQueue:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> bool:
        if self._is_closed:
            return True
        self._is_closed = True
        try:
            return await asyncio.wrap_future(self._writes.submit(self.queue.close))
        finally:
            self._pops.shutdown(wait=False)
            self._writes.shutdown(wait=False)

    async def push(self, messages: DynoMessage | Iterable[DynoMessage]) -> list[str]:
        return await self._write(partial(self.queue.push, messages))

    async def ensure(self, message: DynoMessage) -> bool:
        return await self._write(partial(self.queue.ensure, message))

    async def pop(
        self, most: int = 1, timeout_s: Seconds | None = 0.0, *, lease_s: Seconds | None = None
    ) -> list[AsyncDelivery]:
        """As :meth:`DynoQueue.pop`; returns as soon as there is one."""
        deadline = Deadline(None if timeout_s is None else in_seconds("timeout_s", timeout_s))
        while True:
            self._check_open()
            left_s = deadline.left_s(_SLICE_S)
            job = self._pops.submit(partial(self.queue.pop, most, left_s, lease_s=lease_s))
            try:
                found = await asyncio.wrap_future(job)
            except asyncio.CancelledError:
                job.add_done_callback(_release_all)
                raise
            if found or deadline.is_over:
                return [AsyncDelivery(one, self._write) for one in found]

    async def __aiter__(self) -> AsyncIterator[AsyncDelivery]:
        """One message after another, for ever, as they come."""
        while True:
            for one in await self.pop(1, None):
                yield one

    async def run(self, call: Callable[[DynoQueue], R]) -> R:
        """Any other method of the queue: ``await queue.run(DynoQueue.size)``."""
        return await self._write(partial(call, self.queue))

    async def _write(self, job: Callable[[], R]) -> R:
        self._check_open()
        return await asyncio.wrap_future(self._writes.submit(job))

    def _check_open(self) -> None:
        if self._is_closed:
            raise QueueClosed("the queue was closed")


def _release_all(job: primitives.Future[list[Delivery]]) -> None:
    """Nobody waits for these any more."""
    if job.cancelled() or job.exception() is not None:
        return
    for one in job.result():
        try:
            one.release()
        except LeaderqError as exc:
            log.debug("not released, its lease ends by itself message=%s error=%s", one.id, exc)
