"""Calls of ``handle`` side by side: on threads, or as coroutines on a career's event loop. Each
thread or coroutine follows one chain after the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextvars import copy_context
from functools import partial
from itertools import islice
from typing import Any

from leaderq.async_term import AsyncTerm
from leaderq.kafka.handling.calls import HandleAwaited
from leaderq.term import Term
from leaderq.threads import SerialExecutor, SubmittedWork, TaskWaker, Waker
from leaderq.threads.event_loops import calls_told, started

SLICE_S = 0.2  # how late an exception raised in the waiting thread is delivered
_CLOSE_S = 5.0
Start = Callable[[int, int], int]
"""Lets at most so many workers begin, where so many are busy; returns how many have begun."""


class SharedWork:
    """Work that several workers share. ``supply(start)`` lets them begin, and returns when no other
    is to begin. After ``stop`` all of them end soon.
    """

    def __init__(self) -> None:
        self.waker = Waker()
        self.is_stopped = False
        self.started = 0
        self.ended: list[None] = []  # one for each worker, because adding to it needs no lock

    def supply(self, start: Start) -> None:
        raise NotImplementedError

    @property
    def busy(self) -> int:
        return self.started - len(self.ended)

    def has_ended(self) -> None:
        """Called for each worker that has ended."""
        self.ended.append(None)
        self.waker.wake()

    def stop(self) -> None:
        self.is_stopped = True
        self.waker.wake()


class ThreadWorkers:
    """Up to ``count`` threads, made when first needed, for one :meth:`run` at a time. If ``run`` is
    interrupted while it waits, it stops the work, and still waits for the threads that have begun,
    because the user's code must not go on while ``handOver`` runs.
    """

    def __init__(self, count: int, name: str) -> None:
        self._threads = [SerialExecutor(f"{name}-{number}") for number in range(count)]

    def run(self, work: SharedWork, follow: Callable[[], None]) -> None:
        """Do the work; returns when all workers have ended. ``work.supply`` is called on this
        thread, ``follow`` on each worker.
        """
        begun: dict[SerialExecutor, SubmittedWork] = {}

        def work_off() -> None:
            try:
                follow()
            finally:
                work.has_ended()

        def start(most: int, _busy: int) -> int:
            is_free = lambda each: each not in begun or begun[each].ended(0.0)  # noqa: E731
            free = list(islice(filter(is_free, self._threads), most))
            for thread in free:
                begun[thread] = thread.submit(work_off)
            return len(free)

        try:
            work.supply(start)
            _wait_for(begun.values())
        except BaseException:
            work.stop()
            _wait_for(begun.values())
            raise

    def close(self) -> None:
        """End the threads; one that hangs is left alone after 5 s. May be called twice."""
        for thread in self._threads:
            thread.close(_CLOSE_S)


def _wait_for(begun: Iterable[SubmittedWork]) -> None:
    for each in begun:
        while not each.done(SLICE_S):
            pass


class CoroutineWorkers:
    """Up to ``count`` coroutines at a time on the event loop of a career, for one :meth:`run` at a
    time. ``on_loop(code, term)`` awaits ``code(async_term)`` on the loop and then returns; it
    raises ``UnitAbandoned`` if that was cancelled because the term ends.
    """

    def __init__(
        self,
        count: int,
        handle: HandleAwaited,
        on_loop: Callable[[Callable[[AsyncTerm], Awaitable[None]], Term], None],
    ) -> None:
        self.handle = handle
        self._count = count
        self._on_loop = on_loop

    def run(
        self,
        work: SharedWork,
        follow: Callable[[AsyncTerm], Coroutine[Any, Any, None]],
        term: Term,
    ) -> None:
        """Do the work; returns when all coroutines have ended. ``work.supply`` is called on a
        thread of its own, ``follow`` in each coroutine.
        """
        self._on_loop(partial(self._side_by_side, work, follow), term)

    async def _side_by_side(
        self,
        work: SharedWork,
        follow: Callable[[AsyncTerm], Coroutine[Any, Any, None]],
        term: AsyncTerm,
    ) -> None:
        import asyncio

        loop, context, waker = asyncio.get_running_loop(), copy_context(), TaskWaker()
        tasks: list[asyncio.Task[None]] = []

        def begin(count: int) -> None:
            for _ in range(count):
                task = loop.create_task(follow(term))
                task.add_done_callback(lambda _: work.has_ended())
                tasks.append(task)

        def start(most: int, busy: int) -> int:
            count = max(0, min(most, self._count - busy))
            loop.call_soon_threadsafe(partial(begin, count), context=context)
            return count

        supplying = started(partial(work.supply, start), "leaderq-supply")
        if (tell := calls_told.get()) is not None:
            tell(supplying)
        supplying.add_done_callback(lambda _: waker.wake())
        try:
            while not supplying.done():
                await _despite_others(waker.wait(), term)
        except BaseException:
            work.stop()
            raise
        if supplying.exception() is not None:
            work.stop()
        while left := [task for task in tasks if not task.done()]:
            await _despite_others(asyncio.wait(left), term)
        supplying.result()


async def _despite_others(wait: Awaitable[object], term: AsyncTerm) -> None:
    """Await ``wait``. If it is cancelled, raise only if the term is ending: a handler may have
    cancelled all tasks of the loop.
    """
    from asyncio import CancelledError

    try:
        await wait
    except CancelledError:
        if term.is_ending:
            raise
