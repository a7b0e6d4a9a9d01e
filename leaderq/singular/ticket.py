"""A future for one request, cheap enough to make one for each of a million.

A :class:`concurrent.futures.Future` makes a ``Condition`` at once, and waits by allocating a lock and giving up
another. A ticket has one re-entrant lock; a waiter brings a raw lock of its own, which the writer releases. The
``Condition`` is made when foreign code asks for it (``concurrent.futures.wait``, ``as_completed``), upon the same lock,
so the inherited code stays true.

States: as of any future, PENDING -> RUNNING -> FINISHED, or PENDING -> CANCELLED -> CANCELLED_AND_NOTIFIED; a ticket
whose deadline passes first goes from PENDING to FINISHED with :class:`~leaderq.errors.DeadlineExceeded`. Every change
is made under ``_mutex``, by the writer or by who cancels or waits; the writer alone begins, and after that the writer
alone ends.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Generator
from concurrent.futures import CancelledError, Future, InvalidStateError
from concurrent.futures import TimeoutError as WaitTimeout
from typing import Any, Protocol, TypeVar

from leaderq.clock import now_s
from leaderq.errors import DeadlineExceeded
from leaderq.singular.waits import Writing, begin_wait, end_wait

log = logging.getLogger(__name__)

S = TypeVar("S")

# The words of concurrent.futures, which its wait() and as_completed() compare with.
PENDING, RUNNING, FINISHED = "PENDING", "RUNNING", "FINISHED"
CANCELLED, NOTIFIED = "CANCELLED", "CANCELLED_AND_NOTIFIED"


def is_interrupt(error: BaseException) -> bool:
    """Whether it is Ctrl-C, which the main thread alone gets, and nobody may keep from it. No writer is that thread."""
    return isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread()


class _Lock(Protocol):
    def release(self) -> None: ...


class Ticket(Future[S]):
    """The future of one request: :meth:`result`, :meth:`exception`, :meth:`cancel`, callbacks, ``await``.

    *Guarantees:* all that :class:`concurrent.futures.Future` does. A waiter learns of a missed deadline when it comes,
    not when the writer gets so far. ``await ticket`` works in any asyncio loop; to cancel the task that awaits cancels
    the request, if it is not begun.
    *Not guaranteed:* ``concurrent.futures.wait`` called in a handler is not recognised as a deadlock; :meth:`result` is.
    """

    # Of the class until they differ, for most tickets are neither watched nor cancelled.
    _state = PENDING
    _result: Any = None
    _exception: BaseException | None = None
    _waiters: list[Any] = []  # noqa: RUF012 - who appends to it asks for _condition first, which makes an own one
    _done_callbacks: tuple[Callable[[Future[S]], object], ...] = ()
    _sleepers: tuple[_Lock, ...] = ()
    _foreign: threading.Condition | None = None

    def __init__(self, request: Any, writing: Writing, expiry_s: float | None = None) -> None:
        # Not super().__init__(), which would make a Condition.
        self._mutex = threading.RLock()  # re-entrant: a signal handler may cancel what this thread is about to wait for
        self.request = request
        self.writing = writing
        self.expiry_s = expiry_s

    # -- for the writer ----------------------------------------------------------------------------------------------

    def begin(self) -> bool:
        """The writer turns to it: whether the request is to be applied. If not it was cancelled, or has expired."""
        if self.expiry_s is not None:
            self.expire_if_due()
        with self._mutex:
            if self._state == PENDING:
                self._state = RUNNING
                return True
            if self._state == CANCELLED:
                self._state = NOTIFIED
                for waiter in self._waiters:
                    waiter.add_cancelled(self)
            return self._state == RUNNING  # comes from the queue before this one in a chain

    def end(self, result: Any, error: BaseException | None = None, *, unless_begun: bool = False) -> bool:
        """It has its outcome; ``False`` if it has had one before (or is begun, and should not be)."""
        with self._mutex:
            if self._state != PENDING and (unless_begun or self._state != RUNNING):
                return False
            self._result, self._exception = result, error
            self._state = FINISHED
            self._wake()
            for waiter in self._waiters:
                (waiter.add_result if error is None else waiter.add_exception)(self)
        if self._done_callbacks:
            self._invoke_callbacks()
        return True

    @property
    def is_expired(self) -> bool:
        """Whether it ended because its deadline had come before it was begun."""
        return self._state == FINISHED and isinstance(self._exception, DeadlineExceeded)

    def expire_if_due(self) -> None:
        """End it, if it is not begun and its deadline has come."""
        if self._state == PENDING and self.expiry_s is not None:
            late_s = now_s() - self.expiry_s
            if late_s >= 0:
                self.end(None, DeadlineExceeded(self.writing.name, late_s=late_s), unless_begun=True)

    # -- for who holds it --------------------------------------------------------------------------------------------

    def cancel(self) -> bool:
        """Withdraw the request, unless it is begun; whether it is withdrawn. It keeps its place until its turn comes."""
        with self._mutex:
            if self._state in (RUNNING, FINISHED):
                return False
            if self._state != PENDING:
                return True
            self._state = CANCELLED
            self._wake()
        self._invoke_callbacks()
        return True

    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return self._state in (CANCELLED, NOTIFIED)

    def running(self) -> bool:
        """Whether the writer has begun it, and not ended."""
        return self._state == RUNNING

    def done(self) -> bool:
        """Whether it was cancelled, or has its outcome."""
        return self._state not in (PENDING, RUNNING)

    def result(self, timeout: float | None = None) -> S:
        """The outcome; waits ``timeout`` seconds for it at most.

        :raises concurrent.futures.TimeoutError: none within ``timeout``.
        :raises concurrent.futures.CancelledError: it was cancelled.
        :raises DeadlineExceeded: it was not begun by its deadline.
        :raises WouldDeadlock: called by the handler that would have to do it. Otherwise whatever the handler raised.
        """
        error = self.exception(timeout)
        if error is None:
            return self._result  # type: ignore[no-any-return]
        try:
            raise error
        finally:
            del error, self  # as concurrent.futures does: a traceback must not keep itself alive

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the handler raised, or ``None``; waits ``timeout`` seconds for it at most. Raises as :meth:`result`."""
        if self._state in (PENDING, RUNNING):
            self._sleep(timeout)
        if self._state == FINISHED:
            return self._exception
        if self._state in (CANCELLED, NOTIFIED):
            raise CancelledError
        raise WaitTimeout

    def add_done_callback(self, fn: Callable[[Future[S]], object]) -> None:
        """Call ``fn(ticket)`` when it is done: on the writer's thread, or on that which cancels, or here and now if it
        is done.

        ``fn`` must not touch what the handler owns, unless it knows that it is on the writer's thread; it may submit
        the outcome back.
        """
        with self._mutex:
            if not self.done():
                self._done_callbacks = (*self._done_callbacks, fn)
                return
        self._call_back(fn)

    def __await__(self) -> Generator[Any, None, S]:
        """Wait for the outcome in an asyncio loop."""
        import asyncio  # here, for most who use queues do without

        loop = asyncio.get_running_loop()
        alarm = None if self.expiry_s is None else loop.call_later(max(0.0, self.expiry_s - now_s()), self.expire_if_due)
        try:
            return (yield from asyncio.wrap_future(self, loop=loop).__await__())
        finally:
            if alarm is not None:
                alarm.cancel()

    # -- what is inherited stands on these ---------------------------------------------------------------------------

    @property
    def _condition(self) -> threading.Condition:  # type: ignore[override]
        with self._mutex:
            if self._foreign is None:
                self._waiters = []
                self._foreign = threading.Condition(self._mutex)
            return self._foreign

    def set_result(self, result: S) -> None:
        """Of the base class, for the writer; nobody else should.

        :raises concurrent.futures.InvalidStateError: it is done.
        """
        if not self.end(result):
            raise InvalidStateError(f"{self._state}: {self!r}")

    def set_exception(self, exception: BaseException | None) -> None:
        """Of the base class, for the writer; nobody else should. Raises as :meth:`set_result`."""
        if not self.end(None, exception):
            raise InvalidStateError(f"{self._state}: {self!r}")

    def _invoke_callbacks(self) -> None:
        for callback in self._done_callbacks:
            self._call_back(callback)

    def _call_back(self, fn: Callable[[Future[S]], object]) -> None:
        try:
            fn(self)
        except (
            BaseException
        ) as error:  # whatever it is, it is not the business of the thread that it runs on, often the writer's
            if is_interrupt(error):
                raise
            log.exception("the callback %r of a request failed; the queue goes on", fn)

    def _wake(self) -> None:
        for sleeper in self._sleepers:
            sleeper.release()
        if self._foreign is not None:
            self._foreign.notify_all()

    def _sleep(self, timeout_s: float | None) -> None:
        """Until it is done, or ``timeout_s`` is over."""
        mine = begin_wait(self.writing, "for the outcome of a request")
        try:
            with self._mutex:
                if self.done():
                    return
                sleeper = threading.Lock()
                sleeper.acquire()
                # A lock for each who waits: one for all would have to be passed on, and Ctrl-C could come just before
                # that.
                self._sleepers = (*self._sleepers, sleeper)
            if timeout_s is None and self.expiry_s is None:
                sleeper.acquire()
            elif not self._slept(sleeper, timeout_s):
                with self._mutex:
                    self._sleepers = tuple(one for one in self._sleepers if one is not sleeper)
        finally:
            end_wait(mine)

    def _slept(self, sleeper: threading.Lock, timeout_s: float | None) -> bool:
        """Whether it was done within ``timeout_s``; ends it if its deadline comes meanwhile."""
        until_s = math.inf if timeout_s is None else now_s() + timeout_s
        while True:
            expiry_s = math.inf if self.expiry_s is None or self._state != PENDING else self.expiry_s
            left_s = min(until_s, expiry_s) - now_s()
            if sleeper.acquire(timeout=-1 if left_s == math.inf else min(max(left_s, 0.0), threading.TIMEOUT_MAX)):
                return True
            self.expire_if_due()
            if now_s() >= until_s:
                return self.done()


class Entry:
    """A ticket as it stands in the line. A bare ticket there is a request like any other: somebody posted it."""

    __slots__ = ("ticket",)

    def __init__(self, ticket: Ticket[Any]) -> None:
        self.ticket = ticket
