"""The coordinator for asyncio. Tasks ask, wait and share results as threads do, and may compete
with threads for the same keys. If a task is cancelled while it waits, or its loop is closed, it
leaves the line; if its turn came at the same moment, the next request gets the turn.
"""

from __future__ import annotations

import asyncio
import logging
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import copy_context
from functools import partial, wraps
from typing import Any, Generic, ParamSpec, TypeVar, cast

from leaderq.base.arguments import coroutine_function, instance, plain_function, require
from leaderq.base.timeouts import AS_SET, Deadline
from leaderq.coalescing.coordinator import QueueCoordinator
from leaderq.coalescing.key_table import runs_here
from leaderq.coalescing.rules import CoordinatorStats
from leaderq.coalescing.token import Key, RunResult, Token
from leaderq.threads import TaskWaker, primitives
from leaderq.threads.event_loops import awaited

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")


class AsyncQueueCoordinator(Generic[Key]):
    """Gives tasks what :class:`~leaderq.coalescing.coordinator.QueueCoordinator` gives threads.

    ``AsyncQueueCoordinator(coordinator)`` shares keys, rules and stats with the threads that use
    ``coordinator``; ``AsyncQueueCoordinator(waiters=..., ...)`` makes one of its own from the same
    parameters, but ``cover`` is an ``async`` function, which runs as a task of the loop in which
    the coordinator was last asked. Callbacks (``on_evicted``, ``offer``) may come in any thread.

    The owner of a request is its task: a task that works on a key and asks for it again in a way
    that would wait gets ``WouldDeadlock``. So does a task that the function of ``run`` or
    ``coalesced`` begins (``create_task``, ``gather``, ``to_thread``), because the run may wait for
    that task. For a task that the run does not wait for, use a new context
    (``contextvars.Context().run``).

    :raises ConfigurationError: as ``QueueCoordinator``, or ``cover`` is not an ``async`` function.
    """

    def __init__(
        self,
        coordinator: QueueCoordinator[Key] | None = None,
        *,
        cover: Callable[[Key], Awaitable[object]] | None = None,
        **rules: Any,
    ) -> None:
        given = [*rules, "cover"] if cover is not None else [*rules]
        if coordinator is not None and given:
            raise TypeError(f"the rules of a given coordinator stand; not: {', '.join(given)}")
        require(
            instance("coordinator", coordinator, QueueCoordinator | None),
            None if cover is None else coroutine_function("cover", cover),
        )
        self.coordinator: QueueCoordinator[Key] = (
            QueueCoordinator(**rules) if coordinator is None else coordinator
        )
        """For methods that do not wait: ``offer``, ``state``, ``stats``..."""
        self._keys = self.coordinator._keys
        self._cover_function = cover
        self._loop: asyncio.AbstractEventLoop | None = None
        self._covering: set[primitives.Future[None]] = set()  # asyncio keeps no task alive
        if cover is not None:
            self._keys.cover = self._cover

    async def enqueue(self, key: Key, *, timeout_s: float | None = AS_SET) -> Token[Key]:
        token = Token(key, _this_task())
        await self._ask_and_wait(token, Deadline.asked(timeout_s, self._keys.rules.timeout_s))
        return token

    def dequeue(self, token: Token[Key]) -> bool:
        return self._keys.leave(token)

    @asynccontextmanager
    async def hold(
        self, key: Key, *, timeout_s: float | None = AS_SET
    ) -> AsyncIterator[Token[Key]]:
        """``async with coordinator.hold(key) as token: if token: ...``"""
        with self._keys.ended(await self.enqueue(key, timeout_s=timeout_s)) as token:
            yield token

    def coalesced(
        self, key: Callable[P, Key], *, share: bool = False
    ) -> Callable[[Callable[P, Awaitable[R]]], Callable[P, Coroutine[Any, Any, R | None]]]:
        """A decorator of coroutine functions: calls whose arguments have the same
        ``key(*args, **kwargs)`` are coalesced; see ``QueueCoordinator.coalesced``.

        :raises ConfigurationError: what is decorated is not an ``async`` function.
        """
        require(plain_function("key", key), instance("share", share, bool))

        def decorate(
            function: Callable[P, Awaitable[R]],
        ) -> Callable[P, Coroutine[Any, Any, R | None]]:
            require(coroutine_function("the coalesced function", function))

            @wraps(function)
            async def call(*args: P.args, **kwargs: P.kwargs) -> R | None:
                work = partial(function, *args, **kwargs)
                result = await self._result_of(key(*args, **kwargs), work, AS_SET, follows=share)
                return None if result is None else cast(R, result.get())

            return call

        return decorate

    async def run(
        self, key: Key, function: Callable[[], Awaitable[R]], *, timeout_s: float | None = AS_SET
    ) -> R:
        """Await ``function()``, or return the result of the run that covers this request; see
        ``QueueCoordinator.run``.

        A run belongs to its caller: if the caller is cancelled, the others that wanted its result
        ask again, and are not cancelled.
        """
        result = await self._result_of(key, function, timeout_s, follows=True)
        assert result is not None  # it is not declined without one
        return cast(R, result.get())

    def stats(self) -> CoordinatorStats:
        """See ``QueueCoordinator.stats``."""
        return self.coordinator.stats()

    async def drain(self, timeout_s: float | None = 30.0) -> tuple[Token[Key], ...]:
        """See ``QueueCoordinator.drain``; waits in a thread, while the tasks finish."""
        drain = partial(copy_context().run, self.coordinator.drain, timeout_s)  # it knows who runs
        return await awaited(drain, "leaderq-drain")

    async def __aenter__(self) -> AsyncQueueCoordinator[Key]:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.drain()

    async def _result_of(
        self,
        key: Key,
        function: Callable[[], Awaitable[Any]],
        timeout_s: float | None,
        *,
        follows: bool,
    ) -> RunResult | None:
        deadline = Deadline.asked(timeout_s, self._keys.rules.timeout_s)
        while True:
            token: Token[Key] = Token(key, _this_task())
            token.follows = follows
            token.repeat = partial(self._repeat, asyncio.get_running_loop(), function)
            await self._ask_and_wait(token, deadline)
            if token.is_declined and not follows:
                return None
            if (result := token.result or await self._run_as(token, function)) is not None:
                return result

    async def _ask_and_wait(self, token: Token[Key], deadline: Deadline) -> None:
        keys, self._loop = self._keys, asyncio.get_running_loop()
        try:
            if keys.start(token):
                return
            waker = TaskWaker()

            def wake(token: Token[Key]) -> None:
                if not waker.wake():  # the loop is closed: nobody will ever dequeue
                    log.warning(
                        "event loop closed while a task waited, token leaves token=%r", token
                    )
                    keys.drop(token)

            keys.ask(token, wake)
            while (wait_s := keys.wait_s(token, deadline)) is not None:
                await waker.wait(wait_s)
        except BaseException:
            keys.drop(token)
            raise

    async def _run_as(
        self, token: Token[Key], function: Callable[[], Awaitable[Any]]
    ) -> RunResult | None:
        if token:
            outer = runs_here.set((*runs_here.get(), token))
            with self._keys.ended(token):
                token.result = await RunResult.of_awaited(function)
            runs_here.reset(outer)
        return token.result

    def _cover(self, token: Token[Key]) -> None:
        assert self._cover_function is not None
        if self._loop is None:  # no task has asked so far: the next request covers it
            self._keys.drop(token)
            return
        self._repeat(self._loop, partial(self._cover_function, token.key), token)

    def _repeat(
        self,
        loop: asyncio.AbstractEventLoop,
        function: Callable[[], Awaitable[Any]],
        token: Token[Key],
    ) -> None:
        """Let a task of the loop do the work of a request that gave up; any thread may call this.
        If the loop ends before that is done, the next request covers it.
        """
        work = self._repeating(function, token)
        try:
            covering = asyncio.run_coroutine_threadsafe(work, loop)
        except RuntimeError:  # the loop is closed
            work.close()
            self._keys.drop(token)
            return
        self._covering.add(covering)
        covering.add_done_callback(partial(self._covered, token))

    async def _repeating(self, function: Callable[[], Awaitable[Any]], token: Token[Key]) -> None:
        token.owner = _this_task()
        result = await self._run_as(token, function)
        if result is not None and result.error is not None:
            log.error("covering a key failed key=%r", token.key, exc_info=result.error)

    def _covered(self, token: Token[Key], covering: primitives.Future[None]) -> None:
        self._covering.discard(covering)
        if token:  # a task that is cancelled before it begins runs nothing
            self._keys.drop(token)


def _this_task() -> object:
    """The current task, which owns its requests, as a weak reference: otherwise a key would keep
    the task of a closed loop alive, and nobody would release the key.
    """
    task = asyncio.current_task()
    return None if task is None else weakref.ref(task)
