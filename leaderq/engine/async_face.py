"""Queues for programs on asyncio. The queue itself does the work, on threads, so that the loop
never waits. What happens when a task is cancelled while it waits:

* **in a take**: what was taken meanwhile is released, and no attempt is counted;
* **in a put**: the put is not sent, or it is stored once; nobody is told which;
* **in a settlement** (an acknowledgement, a failure): the settlement is still carried out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

from leaderq.base.arguments import Seconds, in_seconds
from leaderq.base.timeouts import Deadline
from leaderq.engine.taken import Taken
from leaderq.errors import QueueClosed
from leaderq.threads import primitives
from leaderq.threads.event_loops import awaited

_SLICE_S = 0.2
"""How soon a cancelled take is over on its thread."""


R = TypeVar("R")
H = TypeVar("H", bound=Taken)
A = TypeVar("A", bound="AsyncTaken[Any]")


class AsyncTaken(Generic[H]):
    """Something that was taken from a queue, and is settled by awaiting. ``async with``
    acknowledges it at the end of the block; if the block raises, it has failed; if the task is
    cancelled, it is released.
    """

    def __init__(self, taken: H, start: Callable[..., primitives.Future[Any]]) -> None:
        self._taken = taken
        self._start = start
        self._settling: primitives.Future[Any] | None = None

    @property
    def is_settled(self) -> bool:
        """Whether it was settled, or is being settled, even if the task was cancelled."""
        is_settling = self._settling is not None and not self._settling.done()
        return is_settling or self._taken.is_settled

    async def _settle(self, how: Callable[..., R], *args: Any, **options: Any) -> R:
        self._settling = settling = self._start(partial(how, *args, **options))
        return await outcome_of(settling)

    async def __aenter__(self: A) -> A:
        return self

    async def __aexit__(self, *raised: Any) -> None:
        if not self.is_settled:
            await self._settle(self._taken.__exit__, *raised)
        elif self._taken.is_settled:
            self._taken.__exit__(*raised)  # which says if it was lost, and writes nothing

    def __repr__(self) -> str:
        return f"Async{self._taken!r}"


class AsyncFace:
    """``takers`` threads wait for items, others write."""

    queue: Any

    def __init__(self, kind: str, takers: int) -> None:
        self._takes = primitives.ThreadPoolExecutor(takers, f"leaderq-{kind}-take")
        self._writes = primitives.ThreadPoolExecutor(8, f"leaderq-{kind}-write")
        self._is_closed = False

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> bool:
        """Close the queue; return whether everything was written in time. May be called again."""
        if self._is_closed:
            return True
        try:
            return await outcome_of(self._closing()) is not False
        finally:
            self._takes.shutdown(wait=False)

    def _closing(self) -> primitives.Future[Any]:
        closing = self._start(self.queue.close)
        self._is_closed = True
        self._writes.shutdown(wait=False)
        return closing

    async def _taken(self, take: Callable[[float], list[H]], timeout_s: Seconds | None) -> list[H]:
        """Return what ``take(seconds)`` returns, as soon as that is not empty, or after
        ``timeout_s``.
        """
        deadline = Deadline(None if timeout_s is None else in_seconds("timeout_s", timeout_s))
        while True:
            self._check_open()
            one_slice = partial(take, deadline.left_s(_SLICE_S))
            found = await awaited(one_slice, pool=self._takes, put_back=_release)
            if found or deadline.is_over:
                return found

    def _start(self, job: Callable[[], R]) -> primitives.Future[R]:
        self._check_open()
        return self._writes.submit(job)

    async def _write(self, job: Callable[..., R], *args: Any, **options: Any) -> R:
        return await outcome_of(self._start(partial(job, *args, **options)))

    def _check_open(self) -> None:
        if self._is_closed:
            raise QueueClosed("the queue was closed")


async def outcome_of(job: primitives.Future[R]) -> R:
    """Return what ``job`` returns. The job goes on if the task is cancelled."""
    return await asyncio.shield(asyncio.wrap_future(job))


def _release(taken: list[Any]) -> None:
    """Release all that was taken, because nobody waits for it any more."""
    for one in taken:
        one.__exit__(asyncio.CancelledError, asyncio.CancelledError(), None)
