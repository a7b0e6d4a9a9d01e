"""The user's code on what was taken: a plain function, or a coroutine function on an event loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from leaderq.base.arguments import Problem, coroutine_function, plain_function, require_finished
from leaderq.threads import primitives
from leaderq.threads.event_loops import started

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop


def handler_problem(what: str, code: object, *, or_none: bool = False) -> Problem:
    """What is wrong with it as a handler; ``None`` if it can be one."""
    is_coroutine = coroutine_function(what, code) is None
    return None if is_coroutine else plain_function(what, code, or_none=or_none)


class Handler:
    """Calls ``code`` on behalf of worker threads, each of which waits for its end.

    Coroutine functions run on one event loop, on a thread called ``name``, side by side: as many as
    there are threads that call. So they may share what belongs to a loop. What they raise is raised
    to the caller; a task that was cancelled has failed. One that blocks the loop keeps the others
    from going on, and nothing else.
    """

    def __init__(self, what: str, code: Callable[..., Any], name: str) -> None:
        self._what, self._code, self._name = what, code, name
        self._is_coroutine = coroutine_function(what, code) is None
        self._lock = primitives.Lock()
        self._loop: AbstractEventLoop | None = None

    def __call__(self, *given: Any) -> None:
        if not self._is_coroutine:
            require_finished(self._code(*given), self._what)
            return
        from asyncio import run_coroutine_threadsafe

        run_coroutine_threadsafe(self._code(*given), self._running_loop()).result()

    def close(self) -> None:
        """End the loop; for when no call is under way, nor comes."""
        with self._lock:
            loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)

    def _running_loop(self) -> AbstractEventLoop:
        from asyncio import new_event_loop

        with self._lock:
            if self._loop is None:
                self._loop = new_event_loop()
                started(partial(_run, self._loop), self._name)
            return self._loop


def _run(loop: AbstractEventLoop) -> None:
    from asyncio import all_tasks, gather

    try:
        loop.run_forever()
        for task in (left := all_tasks(loop)):  # begun by handlers, and left behind
            task.cancel()
        loop.run_until_complete(gather(*left, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
