"""The coordinator for asyncio: tasks ask, wait and share results as threads do, and may compete with threads for the same
keys.

Waiting costs a future, no thread. A task that is cancelled while it waits leaves the line; if its turn came in the same
moment, the next one gets it. A loop that is closed while its tasks wait does not hold up a key: what cannot be told leaves
the line.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial, wraps
from types import TracebackType
from typing import Any, Generic, ParamSpec, TypeVar

from leaderq.coalescing.coordinator import AS_SET, QueueCoordinator
from leaderq.coalescing.results import Result
from leaderq.coalescing.token import Key, Stage, Token
from leaderq.coalescing.waiting import Deadline, give_up, leave_after, look_again, refuse_if_abandoned

log = logging.getLogger("leaderq.coalescing")

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")


class TaskBell:
    """Wakes the one task that waits, from whatever thread."""

    __slots__ = ("_loop", "_rung")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()

    def ring(self, token: Token[Any]) -> None:
        """Wake it; a ring before the wait is not lost. If the loop is closed nobody will ever dequeue, so the token
        leaves."""
        try:
            self._loop.call_soon_threadsafe(self._rung.set)
        except RuntimeError:
            if token.is_unfinished:
                log.warning("%r: the event loop of whoever waited was closed; the key is given to the next", token)
                token.stripe.leave(token)

    async def wait(self, timeout_s: float | None) -> None:
        """Until it is rung, or the time is over. Not ``asyncio.wait_for``, which before Python 3.12 may swallow a
        cancellation."""
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, self._rung.set)
        try:
            await self._rung.wait()
            self._rung.clear()
        finally:
            if timer is not None:
                timer.cancel()


class AsyncQueueCoordinator(Generic[Key]):
    """What :class:`~leaderq.coalescing.coordinator.QueueCoordinator` promises, for tasks.

    ``AsyncQueueCoordinator(coordinator)`` shares keys, rules and counters with the threads that use ``coordinator``;
    ``AsyncQueueCoordinator(waiters=..., ...)`` makes one of its own from the same parameters. Callbacks (``on_evicted``,
    ``offer``) may come in any thread.

    The owner of a request is its task: a task that works on a key and asks for it again in a way that would wait gets
    ``WouldDeadlock``. A task that awaits *another* one that asks for the key it holds is not noticed; ``wait_s`` ends it.
    """

    def __init__(self, coordinator: QueueCoordinator[Key] | None = None, **rules: Any) -> None:
        self.coordinator: QueueCoordinator[Key] = QueueCoordinator(**rules) if coordinator is None else coordinator
        """For what does not wait: ``try_enqueue``, ``offer``, ``is_current``, ``counters``, ``sweep``..."""
        if coordinator is not None and rules:
            raise TypeError(f"the rules of a given coordinator stand; {', '.join(rules)} cannot be given with it")

    async def enqueue(self, key: Key, value: Any = None, *, wait_s: float | None = AS_SET) -> Token[Key]:
        """Ask to work on ``key``; waits for its turn if it is to wait. True if it may run now, and then ``dequeue`` must
        follow.

        :raises WaitTimedOut: its turn did not come within ``wait_s``; it does not wait any more.
        :raises WouldDeadlock: this task works on the key itself.
        :raises CoordinatorClosed: nothing runs any more.
        """
        token = self.coordinator.token_for(key, value, owner=asyncio.current_task())
        try:
            await self._admit_and_wait(token, self.coordinator.deadline(wait_s))
            return token
        except BaseException as exc:
            leave_after(exc, token)
            raise

    def dequeue(self, token: Token[Key]) -> bool:
        """The work is done, or given up: the next one runs. Whether the token was current."""
        return self.coordinator.dequeue(token)

    def hold(self, key: Key, value: Any = None, *, wait_s: float | None = AS_SET) -> AsyncHold[Key]:
        """``async with coordinator.hold(key) as token: if token: ...``"""
        return AsyncHold(self, key, value, wait_s)

    def coalesced(
        self,
        key: Callable[P, Key],
        *,
        share: bool = False,
        declined: D = None,  # type: ignore[assignment]
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Awaitable[R | D]]]:
        """A decorator of coroutine functions: calls whose arguments give the same ``key(*args, **kwargs)`` are coalesced.

        A declined call gives ``declined``; with ``share`` it gives, or raises, what the run gave that covers it.
        """

        def decorate(function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R | D]]:
            @wraps(function)
            async def call(*args: P.args, **kwargs: P.kwargs) -> R | D:
                whose = key(*args, **kwargs)
                if share:
                    return await self.run(whose, partial(function, *args, **kwargs))
                async with self.hold(whose) as token:
                    return await function(*args, **kwargs) if token else declined

            return call

        return decorate

    async def run(self, key: Key, function: Callable[[], Awaitable[R]], *, wait_s: float | None = AS_SET) -> R:
        """Await ``function()``, or give what the run gave that covers this request; see ``QueueCoordinator.run``.

        The run is its caller's: if that is cancelled, those who hoped for its result ask again, and are not cancelled.

        :raises WaitTimedOut: neither its turn nor a result came within ``wait_s``.
        :raises WouldDeadlock: this task works on the key itself.
        :raises CoordinatorClosed: nothing runs any more.
        """
        deadline = self.coordinator.deadline(wait_s)
        while True:
            token = self.coordinator.token_for(key, owner=asyncio.current_task())
            token.follows = True
            try:
                await self._admit_and_wait(token, deadline)
                if token.stage is Stage.RUNNING:
                    token.result = await Result.of_awaited(function)
                    token.stripe.leave(token, token.result)
            except BaseException as exc:
                leave_after(exc, token)
                raise
            if token.result is not None:
                given: R = token.result.give()
                return given

    async def drain(self, timeout_s: float = 30.0) -> tuple[Token[Key], ...]:
        """See ``QueueCoordinator.drain``; waits in a thread, while the tasks finish."""
        return await asyncio.to_thread(self.coordinator.drain, timeout_s)

    async def __aenter__(self) -> AsyncQueueCoordinator[Key]:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.drain()

    async def _admit_and_wait(self, token: Token[Key], deadline: Deadline) -> None:
        self.coordinator.admit(token, TaskBell)
        while token.stage.is_pending and isinstance(token.bell, TaskBell):
            await token.bell.wait(deadline.remaining_s)
            if deadline.is_over:
                give_up(token, deadline)
            else:
                look_again(token)
        refuse_if_abandoned(token)


class AsyncHold(Generic[Key]):
    """``async with AsyncHold(...) as token: if token: ...``. May be entered again once it was left, not within itself."""

    __slots__ = ("_coordinator", "_key", "_token", "_value", "_wait_s")

    def __init__(self, coordinator: AsyncQueueCoordinator[Key], key: Key, value: Any, wait_s: float | None) -> None:
        self._coordinator = coordinator
        self._key = key
        self._value = value
        self._wait_s = wait_s
        self._token: Token[Key] | None = None

    async def __aenter__(self) -> Token[Key]:
        """Ask, and wait if that is the answer; raises what ``enqueue`` raises."""
        self._token = await self._coordinator.enqueue(self._key, self._value, wait_s=self._wait_s)
        return self._token

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            leave_after(error, self._token)
