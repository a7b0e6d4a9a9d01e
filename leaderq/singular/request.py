"""A submitted request: the future of its outcome, and its deadline.

The first to claim a request begins it: the writer, which applies it, or a waiter that finds its
deadline over. ``concurrent.futures.Future`` decides between that and ``cancel()``.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeVar

from leaderq.base import clock
from leaderq.errors import DeadlineExceeded, WouldDeadlock
from leaderq.threads import Inbox, primitives
from leaderq.threads.waker import bounded_s

S = TypeVar("S")


class RequestFuture(primitives.Future[S]):
    """The future of one request: a :class:`concurrent.futures.Future` that can be awaited too.

    *Guarantees:* a waiter learns of a missed deadline when it passes, not when the request's turn
    comes. To cancel a task that awaits cancels the request, unless it was begun.
    *Not guaranteed:* that a deadlock is recognised if a handler calls ``concurrent.futures.wait``;
    :meth:`result` recognises it. A ring of handlers that wait for each other's queues is not
    recognised.
    """

    _expiry_s: float | None = None
    _unclaimed: primitives.Lock | None = None

    def __init__(self, inbox: Inbox[Any], expiry_s: float | None = None) -> None:
        super().__init__()
        self.inbox = inbox
        """The inbox of the queue that has the request: in a chain, one queue after another."""
        if expiry_s is not None:
            self._expiry_s = expiry_s
            self._unclaimed = primitives.Lock()

    def result(self, timeout: float | None = None) -> S:
        """Return the outcome; wait at most ``timeout`` seconds for it, ``None`` for ever.

        :raises concurrent.futures.TimeoutError: there was no outcome within ``timeout`` seconds.
        :raises concurrent.futures.CancelledError: the request was cancelled.
        :raises DeadlineExceeded: it was not begun by its deadline.
        :raises WouldDeadlock: the caller is the handler that would have to apply it.
            Otherwise raises the handler's own error.
        """
        return super().result(self._waited(timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the handler's error, or ``None`` if there is none; otherwise does what
        :meth:`result` does.
        """
        return super().exception(self._waited(timeout))

    def __await__(self) -> Generator[Any, None, S]:
        import asyncio  # here, because most who use queues do without

        loop = asyncio.get_running_loop()
        alarm = None
        if self._expiry_s is not None:
            alarm = loop.call_later(max(0.0, self._expiry_s - clock.now_s()), self.expire_if_due)
        try:
            return (yield from asyncio.wrap_future(self, loop=loop).__await__())
        finally:
            if alarm is not None:
                alarm.cancel()

    def begin(self) -> bool:
        """Claim the request; return whether the caller must apply it: nobody has cancelled or
        claimed it.
        """
        if self._unclaimed is not None and not self._unclaimed.acquire(blocking=False):
            return False
        return self.set_running_or_notify_cancel()

    def settle(self, outcome: Any, error: BaseException | None = None) -> None:
        """Set the outcome of a request that was begun."""
        if isinstance(error, StopIteration):  # nobody could await it, see PEP 479
            stop, error = error, RuntimeError("the handler raised StopIteration")
            error.__cause__ = stop
        if error is None:
            self.set_result(outcome)
        else:
            self.set_exception(error)

    def expire_if_due(self) -> bool:
        """End the request if its deadline has passed before it was begun; return whether it has."""
        if self._expiry_s is None or (late_s := clock.now_s() - self._expiry_s) < 0:
            return False
        if not self.begin():
            return self.expired is not None
        self.settle(None, DeadlineExceeded(self.inbox.name, late_s=late_s))
        return True

    @property
    def expired(self) -> DeadlineExceeded | None:
        """The error of a request that was not begun by its deadline."""
        error = super().exception(0) if self.done() and not self.cancelled() else None
        return error if isinstance(error, DeadlineExceeded) else None

    def _waited(self, timeout: float | None) -> float | None:
        """Wait until the deadline, if it comes before the end of ``timeout``; return the rest of
        ``timeout``.
        """
        inbox = self.inbox
        if inbox.is_foreign and not self.done():
            raise inbox.refusal()
        if inbox.taker == primitives.get_ident() and not self.done():
            raise WouldDeadlock(
                f"a handler of queue {inbox.name!r} would wait for its own queue; "
                "submit the outcome back as a request instead (post_back)"
            )
        if self._expiry_s is None or self.running() or self.done():
            return timeout
        began_s = clock.now_s()
        left_s = max(0.0, self._expiry_s - began_s)
        if timeout is not None and timeout <= left_s:
            return timeout
        try:
            super().exception(bounded_s(left_s))
        except primitives.FutureTimeout:
            self.expire_if_due()
        except primitives.CancelledError:
            pass
        return None if timeout is None else max(0.0, timeout - (clock.now_s() - began_s))


class TrackedRequest:
    """A request in the inbox that has a future. Requests without a future stand there as
    they are.
    """

    __slots__ = ("future", "is_begun", "request")

    def __init__(self, request: Any, future: RequestFuture[Any], *, is_begun: bool = False) -> None:
        self.request = request
        self.future = future
        self.is_begun = is_begun
        """Whether it comes from the queue before this one in a chain."""

    def begin(self) -> bool:
        """Return whether to apply the request; if not, it was cancelled or has expired."""
        return self.is_begun or (not self.future.expire_if_due() and self.future.begin())
