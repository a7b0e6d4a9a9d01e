"""The event loop of an async career, on a thread of its own, which the career's thread uses.

The career's thread gives the loop one coroutine after another (a *call*: ``inaugurate``, a call of
``execute``, ...) and waits for each. So the runner sees a synchronous career, and what keeps the
leadership (the lease, its proof, the budgets, the guardian) never runs on the loop. While the
career's thread waits, it does what the loop cannot do for itself: it looks at the clock, cancels
the call when the term ends, and names the loop when it is blocked.

A *scope* knows the tasks, and the calls in threads (``asyncio.to_thread``, ``run_in_executor``,
``term.write``), that were begun in a unit, in a term, or before any term. Each task inherits the
scope through its context. To end a scope, its tasks are cancelled again and again, and its calls in
threads are waited for, because nothing else can be done about them; it ends when nothing is left in
it.

On each failure: if the coroutine raises, its call raises the same on the career's thread. If it is
cancelled at the end of the term, the call raises ``UnitAbandoned``. If the loop is blocked, or a
task or thread goes on in spite of everything, the call does not return, like any code of the user
that hangs; the budgets of the term are there for that. If a coroutine forks and the child comes
back to the loop, the child exits, because the loop's sockets belong to its parent.
"""

from __future__ import annotations

import asyncio
import logging
import os
import selectors
import traceback
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import Any

from leaderq.async_term import ending
from leaderq.base import clock, host
from leaderq.base.exits import ExitCode
from leaderq.errors import Deposed, UnitAbandoned
from leaderq.term import Term
from leaderq.threads import TaskWaker, Waker, primitives
from leaderq.threads.event_loops import calls_told

log = logging.getLogger(__name__)

_AGAIN_S = 2.0
"""Tasks that go on although they were cancelled are cancelled again after so many seconds."""
_CLOSE_S = 5.0
_NAMED = 5
_scope: ContextVar[Scope | None] = ContextVar("leaderq-scope", default=None)
Due = Callable[[int], float]
Make = Callable[[], Coroutine[Any, Any, object]]


class Scope:
    """The tasks and calls that were begun in ``what`` (a unit, a term, the process) and have not
    ended.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.tasks: dict[asyncio.Task[Any], None] = {}
        self.calls: dict[primitives.Future[Any], None] = {}
        self._has_ended = False
        self._waker: TaskWaker | None = None

    def add_task(self, task: asyncio.Task[Any]) -> None:
        self.tasks[task] = None
        task.add_done_callback(self._left)
        if self._has_ended:  # begun by a callback: it shall not take a step
            task.cancel(f"{self.what} is over")

    def add_call(self, call: primitives.Future[Any]) -> None:
        self.calls[call] = None
        call.add_done_callback(self._left)

    def check_open(self) -> None:
        if self._has_ended:
            raise RuntimeError(f"{self.what} is over; nothing can be begun in it")

    def cancel(self, why: str) -> None:
        for task in list(self.tasks):
            task.cancel(why)
        for call in list(self.calls):
            call.cancel()  # if no thread has begun it

    async def end(self, why: str, *, expected: bool) -> None:
        """Cancel what is left, and return when nothing is left. ``expected``: log nothing at first,
        because something is expected to be left.
        """
        self._waker = waker = TaskWaker()
        was_named = expected
        while self.tasks or self.calls:
            if not was_named:
                log.warning(
                    "left behind, tasks are cancelled and threads waited for"
                    " by=%s tasks=%d threads=%d names=%s",
                    *(self.what, len(self.tasks), len(self.calls), ", ".join(self._names())),
                )
            was_named = not expected  # those that were expected are named when they do not end
            expected = False
            self.cancel(why)
            until_s = clock.now_s() + _AGAIN_S
            while (self.tasks or self.calls) and (left_s := until_s - clock.now_s()) > 0:
                with suppress(asyncio.CancelledError):  # of all tasks of the loop
                    await waker.wait(left_s)
        self._has_ended = True

    def _left(self, ended: Any) -> None:
        self.tasks.pop(ended, None)
        self.calls.pop(ended, None)
        if self._waker is not None and not (self.tasks or self.calls):
            self._waker.wake()

    def _names(self) -> Iterator[str]:
        tasks = list(self.tasks)
        yield from (_name(task) for task in tasks[:_NAMED])
        if len(tasks) > _NAMED:
            yield "..."


def _name(task: asyncio.Task[Any]) -> str:
    frames = task.get_stack(limit=1)
    where = f" {frames[0].f_code.co_filename}:{frames[0].f_lineno}" if frames else ""
    return f"{task.get_name()} ({getattr(task.get_coro(), '__qualname__', '?')}{where})"


class EventLoop:
    """An event loop and its thread. ``career`` is for the log; a loop that answers nothing for
    ``blocked_after_s`` seconds is named in the log. Other threads call :meth:`run` and
    :meth:`close`.
    """

    def __init__(self, career: str, *, blocked_after_s: float) -> None:
        self._career = career
        self._look_s = blocked_after_s / 2
        self._loop = primitives.new_event_loop(_Selector(host.pid()))
        self._loop.set_task_factory(_make_task)
        self._loop.run_in_executor = self._run_in_executor  # type: ignore[assignment]
        self._pool = primitives.ThreadPoolExecutor(thread_name_prefix=f"leaderq-thread-{career}")
        self._is_over = False
        self._has_answered = True
        self._asked_s = clock.now_s()
        self._silent_looks = 0
        self._thread = primitives.Thread(
            target=self._serve, name=f"leaderq-loop-{career}", daemon=True
        )
        self._thread.start()

    def run(
        self,
        make: Make,
        scope: Scope,
        *,
        ends_scope: bool = False,
        term: Term | None = None,
        cancel_in_s: Due | None = None,
        waker: Waker | None = None,
    ) -> object:
        """Run the coroutine that ``make()`` returns, until it has ended; if ``ends_scope``, until
        all of ``scope`` has ended, too. Return what it returns, or raise what it raises.

        When ``term`` ends, ``cancel_in_s(n)`` says in how many seconds the coroutine is cancelled
        for the ``n`` th time; 0: now. It is asked again when ``waker`` is woken, and from time to
        time.
        """
        call = _Call(self._loop, make, scope, ends_scope, waker or Waker())
        cancels = 0
        self._loop.call_soon_threadsafe(call.start)
        forget = None if term is None else term._call_at_end(call.waker.wake)
        try:
            while not call.is_done:
                left_s = self._look()
                if term is not None and cancel_in_s is not None:
                    if term._is_on():  # by the clock, too
                        due_s = term.remaining_s()
                    elif (due_s := cancel_in_s(cancels + 1)) <= 0:
                        self._loop.call_soon_threadsafe(call.cancel, ending(term.reason))
                        cancels, due_s = cancels + 1, 0.0
                    left_s = min(left_s, due_s)
                call.waker.wait(left_s)
        except BaseException:  # Ctrl-C in a test that drives a career
            self._loop.call_soon_threadsafe(call.cancel, "its caller was interrupted")
            raise
        finally:
            if forget is not None:
                forget()
        return call.outcome(term)

    def close(self, scope: Scope) -> None:
        """End ``scope`` and the loop. What does not end lives until the process ends."""
        ended: primitives.Future[None] = primitives.Future()

        def begin() -> None:
            # On the loop: nothing is made for one that is gone with its process.
            self._loop.create_task(self._wind_up(scope)).add_done_callback(tell)

        def tell(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            ended.set_exception(error) if error else ended.set_result(None)

        self._loop.call_soon_threadsafe(begin)
        try:
            ended.result(_CLOSE_S)
        except primitives.FutureTimeout:
            log.error(  # noqa: TRY400  (a sentence for operators)
                "event loop does not end, it is left career=%s stack=%s",
                self._career,
                self._stack(),
            )
            return
        self._loop.call_soon_threadsafe(self._stop)
        self._thread.join(_CLOSE_S)

    # ---- the loop's thread -----------------------------------------------------------------------

    def _serve(self) -> None:
        while not self._is_over:
            try:
                self._loop.run_forever()
            except (SystemExit, KeyboardInterrupt):
                continue  # raised by a task, whose call raises it again
        self._loop.close()

    async def _wind_up(self, scope: Scope) -> None:
        await scope.end("the career has retired", expected=False)
        await self._loop.shutdown_asyncgens()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _stop(self) -> None:
        self._is_over = True
        self._loop.stop()

    def _run_in_executor(
        self, executor: Any, function: Callable[..., Any], *given: Any
    ) -> asyncio.Future[Any]:
        if (scope := _scope.get()) is not None:
            scope.check_open()
        call = (self._pool if executor is None else executor).submit(function, *given)
        if scope is not None:
            scope.add_call(call)
        return asyncio.wrap_future(call, loop=self._loop)

    # ---- is it blocked? --------------------------------------------------------------------------

    def _look(self) -> float:
        """Log the loop if it has answered nothing for two looks; return in how many seconds to look
        again. Two, because a process that was frozen finds its loop silent at the first look.
        """
        now_s = clock.now_s()
        if now_s - self._asked_s < self._look_s:
            return self._asked_s + self._look_s - now_s
        if not self._has_answered:
            self._silent_looks += 1
            if self._silent_looks == 2:
                log.error(
                    "event loop is blocked, nothing else runs on it career=%s stack=%s",
                    *(self._career, self._stack()),
                )
        else:
            if self._silent_looks >= 2:
                log.warning("event loop runs again career=%s", self._career)
            self._silent_looks = 0
            self._has_answered = False
            self._loop.call_soon_threadsafe(self._answer)
        self._asked_s = now_s
        return self._look_s

    def _answer(self) -> None:
        self._has_answered = True

    def _stack(self) -> str:
        frame = primitives.frame_of(self._thread.ident or 0)
        return "unknown" if frame is None else "\n" + "".join(traceback.format_stack(frame))


class _Call:
    """One coroutine that the loop runs for another thread."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        make: Make,
        scope: Scope,
        ends_scope: bool,
        waker: Waker,
    ) -> None:
        self.waker = waker
        self.is_done = False
        self._loop = loop
        self._make = make
        self._scope = scope
        self._ends_scope = ends_scope
        self._task: asyncio.Task[object] | None = None
        self._serving: asyncio.Task[None] | None = None
        self._why: str | None = None
        """Why it was cancelled, if it was."""

    def start(self) -> None:
        self._serving = self._loop.create_task(self._serve())
        self._serving.add_done_callback(self._ended)

    def _ended(self, _serving: asyncio.Task[None]) -> None:
        if self._task is None:  # somebody cancelled all tasks of the loop before its first step
            self.start()
            return
        self.is_done = True
        self.waker.wake()

    def cancel(self, why: str) -> None:
        if self._task is not None and not self._task.done():
            self._why = why
            self._task.cancel(why)
            self._scope.cancel(why)

    async def _run(self) -> object:
        return await self._make()

    async def _serve(self) -> None:
        context = copy_context()
        context.run(_scope.set, self._scope)
        context.run(calls_told.set, self._scope.add_call)
        self._task = context.run(asyncio.Task, self._run(), loop=self._loop)
        self._task.set_name(self._scope.what)
        while not self._task.done():
            with suppress(asyncio.CancelledError):  # of all tasks of the loop
                await asyncio.wait([self._task])
        if self._ends_scope:
            why = self._why or f"{self._scope.what} is over"
            await self._scope.end(why, expected=self._why is not None)

    def outcome(self, term: Term | None) -> object:
        """Return what the coroutine returned, or raise what it raised; ``UnitAbandoned`` if it was
        cancelled because its term ended.
        """
        task = self._task
        assert task is not None  # it is done
        if task.cancelled() and (self._why or (term is not None and term.ending.is_set())):
            raise UnitAbandoned
        try:
            return task.result()
        except BaseException as error:
            deposed = _only_deposed(error)
            if deposed is None or deposed is error:
                raise
            raise deposed from error


def _only_deposed(error: BaseException) -> Deposed | None:
    """The first ``Deposed`` in an exception group that has nothing else in it. Tasks that run side
    by side raise such a group.
    """
    within = getattr(error, "exceptions", None)
    if not isinstance(within, tuple):
        return error if isinstance(error, Deposed) else None
    found = [_only_deposed(one) for one in within]
    return found[0] if all(found) else None


def _make_task(loop: asyncio.AbstractEventLoop, coroutine: Any, **given: Any) -> asyncio.Task[Any]:
    """Make a task, and add it to the scope of the code that creates it; the task factory of the
    loop.
    """
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **given)
    context = given.get("context")
    scope = _scope.get() if context is None else context.get(_scope)
    if scope is not None:
        scope.add_task(task)
    return task


class _Selector(selectors.DefaultSelector):
    """Ends a forked child that comes back to the loop, because it would take its parent's
    events.
    """

    def __init__(self, pid: int) -> None:
        super().__init__()
        self._pid = pid

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if host.has_forked_from(self._pid):
            os._exit(ExitCode.FAILED)
        return super().select(timeout)
