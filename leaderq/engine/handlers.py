"""Calls the user's code on what was taken: a plain function, or a coroutine function on an event
loop; and the threads that call it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from leaderq.base.arguments import Problem, coroutine_function, plain_function, require_finished
from leaderq.base.timeouts import Deadline
from leaderq.threads import Service, primitives
from leaderq.threads.event_loops import running_loop, started

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


def handler_problem(what: str, code: object, *, or_none: bool = False) -> Problem:
    """Why ``code`` cannot be a handler; ``None`` if it can."""
    is_coroutine = coroutine_function(what, code) is None
    return None if is_coroutine else plain_function(what, code, or_none=or_none)


class Handler:
    """Calls ``code`` for worker threads, each of which waits until its call has ended.

    Coroutine functions run on one event loop, on a thread called ``name``, side by side: as many as
    there are threads that call. So they may share what belongs to a loop. What a coroutine raises
    is raised to its caller, ``SystemExit`` too; a task that was cancelled has failed. A coroutine
    that blocks the loop holds up the other coroutines, and nothing else; one that stops the loop
    stops nothing.
    """

    def __init__(self, what: str, code: Callable[..., Any], name: str) -> None:
        self._what, self._code, self._name = what, code, name
        self._is_coroutine = coroutine_function(what, code) is None
        self._lock = primitives.Lock()
        self._loop: AbstractEventLoop | None = None

    def __call__(self, *given: Any) -> None:
        if not self._is_coroutine:
            if (returned := self._code(*given)) is not None:
                require_finished(returned, self._what)
            return
        from asyncio import run_coroutine_threadsafe

        run_coroutine_threadsafe(self._code(*given), self._running_loop()).result()

    @property
    def is_current(self) -> bool:
        """Whether the caller is one of the coroutines."""
        return (loop := running_loop()) is not None and loop is self._loop

    def close(self) -> None:
        """End the loop. Call it when no call is under way, and none will come."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def _running_loop(self) -> AbstractEventLoop:
        from asyncio import new_event_loop

        with self._lock:
            if self._loop is None:
                self._loop = new_event_loop()
                started(partial(self._serve, self._loop), self._name)
            return self._loop

    def _serve(self, loop: AbstractEventLoop) -> None:
        from asyncio import all_tasks, gather

        try:
            while self._loop is loop:
                with suppress(SystemExit, KeyboardInterrupt):  # of a task, whose caller raises it
                    loop.run_forever()
            for task in (left := all_tasks(loop)):  # begun by handlers, and left behind
                task.cancel()
            loop.run_until_complete(gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
        finally:
            loop.close()


class HandlerThreads:
    """``count`` threads that call ``run``, which takes what there is and calls the user's code."""

    def __init__(
        self,
        what: str,
        code: Callable[..., Any],
        name: str,
        count: int,
        run: Callable[[Service], object],
    ) -> None:
        self._handler = Handler(what, code, f"{name}-loop")
        self._at_work: list[None] = []  # one for each that has begun
        serve = partial(self._serve, run)
        self._services = [Service(f"{name}-{number}", serve) for number in range(count)]

    def start(self) -> None:
        """Start the threads; a second call does nothing."""
        for service in self._services:
            service.start()

    def stop(self, timeout_s: float | None = 30.0) -> bool:
        """Begin nothing more; wait at most ``timeout_s`` seconds (``None``: without end) for the
        calls under way. If a handler calls this, its own call is not waited for, and a coroutine
        waits for none, because all need its loop. Return whether all others ended in time.
        """
        deadline = Deadline.asked(0.0 if self._handler.is_current else timeout_s, None)
        for service in self._services:
            service.is_stopping = True
        others = [one for one in self._services if not one.is_current]
        ended = [one.stop(deadline.remaining_s) for one in others]
        return all(ended)

    @property
    def is_running(self) -> bool:
        """Whether any of its threads is."""
        return any(one.is_running for one in self._services)

    def _serve(self, run: Callable[[Service], object], service: Service) -> None:
        self._at_work.append(None)
        try:
            run(service)
        finally:
            self._at_work.pop()
            if not self._at_work:  # the last one closes the loop; who comes later makes another
                self._handler.close()
