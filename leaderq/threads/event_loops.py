"""Calls from event loops to threads. asyncio is imported only when a coroutine makes such a
call.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from leaderq.threads import primitives

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

T = TypeVar("T")
calls_told: ContextVar[Callable[[primitives.Future[Any]], object] | None] = ContextVar(
    "leaderq-calls-told", default=None
)
"""In a task: the function to tell of its calls in other threads, which outlive a cancellation."""


def runs_event_loop() -> bool:
    """Whether the caller runs on an event loop of asyncio, which a blocking wait would stop."""
    return running_loop() is not None


def running_loop() -> AbstractEventLoop | None:
    """The event loop of asyncio on which the caller runs, if it does."""
    running = getattr(sys.modules.get("asyncio.events"), "_get_running_loop", None)
    return None if running is None else running()


def started(call: Callable[[], T], name: str) -> primitives.Future[T]:
    """Make ``call()`` on a new thread called ``name``; return the future of its outcome. It gets a
    new thread because the threads of a pool could all be busy with waits.

    If a task that awaits the future is cancelled, the call goes on.
    """
    outcome: primitives.Future[T] = primitives.Future()
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        try:
            outcome.set_result(call())
        except BaseException as exc:  # noqa: BLE001  (handed on to whoever awaits)
            outcome.set_exception(exc)

    primitives.Thread(target=run, name=name, daemon=True).start()
    return outcome


async def awaited(
    call: Callable[[], T],
    name: str = "",
    *,
    pool: primitives.ThreadPoolExecutor | None = None,
    give_up: Callable[[], object] = lambda: None,
    put_back: Callable[[T], object] = lambda _: None,
) -> T:
    """Make ``call()`` on a new thread called ``name``, or on a thread of ``pool``; return what the
    call returns, or raise what it raises.

    If the task is cancelled meanwhile, the call is abandoned: ``give_up()`` asks it to end soon,
    and what it still returns is given to ``put_back``. Neither may block, and ``put_back`` may be
    called on any thread. A call that no thread of ``pool`` has begun by then is never made.
    """
    from asyncio import CancelledError, wrap_future

    outcome = started(call, name) if pool is None else pool.submit(call)
    if (tell := calls_told.get()) is not None:
        tell(outcome)
    try:
        return await wrap_future(outcome)
    except CancelledError:
        give_up()
        outcome.add_done_callback(partial(_abandoned, put_back))
        raise


def _abandoned(put_back: Callable[[T], object], outcome: primitives.Future[T]) -> None:
    if not outcome.cancelled() and outcome.exception() is None:
        put_back(outcome.result())
