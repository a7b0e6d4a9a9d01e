"""The queue that users see: many threads submit requests, one thread applies them.

The writer's thread is authoritative: only this thread touches the data that the handler owns.
States: new -> working -> closed (no request gets in; the writer goes on with those that are in) ->
ended.
The thread starts with the first request, so a queue that was made before a fork, and not yet used,
works in the child. No request that got in vanishes: it is applied, or its future and the listener
are told why not.
"""

from __future__ import annotations

import logging
import reprlib
import weakref
from collections.abc import Callable, Iterable
from dataclasses import asdict
from itertools import count
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, overload

from leaderq.base import clock
from leaderq.base.arguments import at_least, instance, plain_function, require, timeout
from leaderq.base.timeouts import AS_SET
from leaderq.errors import ConfigurationError, RequestCancelled
from leaderq.observability.figures import FigureSource, offer_figures
from leaderq.singular.request import RequestFuture, TrackedRequest
from leaderq.singular.writer import BatchWriter, OnError, Stats, Writer

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

log = logging.getLogger(__name__)

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
U = TypeVar("U")

CAPACITY = 10_000
_LATE = "the queue was closed while it got in"
_numbers = count(1)


def _figures(queue: SingularUpdateQueue[Any, Any]) -> dict[str, float]:
    return asdict(queue.stats())


class Options(TypedDict, total=False):
    """The keywords of a queue except ``max_batch``, which decides the type of the handler."""

    name: str | None
    capacity: int | None
    timeout_s: float | None
    deadline_s: float | None
    on_error: OnError


def log_failure(request: Any, error: BaseException) -> None:
    """Log a request that was not applied. Requests that a close cancels are not logged here; the
    close logs their number.
    """
    if not isinstance(error, RequestCancelled):
        log.error("request not applied request=%s", reprlib.repr(request), exc_info=error)


class SingularUpdateQueue(Generic[R, S]):
    """Applies requests one at a time, in the order in which they came, on one thread; callers do
    not wait for one another.

    ``handler(request)`` returns the outcome. Only that thread touches the handler's data, so the
    data need no lock.

    - ``capacity``: how many requests may wait; ``None``: as many as memory holds. The request that
      the handler works on does not count.
    - ``timeout_s``: how many seconds :meth:`submit`, :meth:`post` and :meth:`call` wait for room in
      a full queue; ``None``: for ever; 0: not at all.
    - ``deadline_s``: seconds within which a request must be begun, unless it comes with its own;
      ``None``: at any time.
    - ``max_batch``: if given, the handler takes a list of all the requests that wait, at most
      ``max_batch``, and returns an outcome for each, in their order (an exception: that request
      failed), or ``None``.
    - ``name``: the name of its thread, in its log lines, and of its figures in Prometheus.
    - ``on_error(request, error)``: called for each request that got in and was not applied, unless
      its owner cancelled it; by default it logs. It runs on the writer's thread, or on the thread
      that closes the queue.

    *Guarantees:* one request at a time, each at most once; the requests of one thread in its order,
    and of all threads in the order in which they got in; never more than ``capacity`` wait; waiting
    callers get room in the order in which they came, as soon as there is some. A request that got
    in is applied, or its future and the listener get the error. A queue left open is drained when
    it is dropped, and when the interpreter exits, for ten seconds at most. :meth:`post` may be
    called by a finalizer or a signal handler. What handler, listener or callbacks raise ends the
    queue only if it is a handler's ``SystemExit`` or ``KeyboardInterrupt``. *Not guaranteed:*
    anything after the death of the process: nothing is on disk. A handler's own requests to its
    queue get in beyond ``capacity``, because nobody else could make room. (A closed queue does not
    take these either, because closing might never end.) A signal handler or finalizer that
    interrupts its own thread while that thread looks for room gets ``WouldDeadlock``. Two handlers
    that wait for each other's queues wait for ever.

    Callbacks of other systems (a client library, a timer) must not touch what the handler owns,
    because they run on other threads: let them submit the outcome back, as :meth:`post_back` does.
    When the section to protect takes microseconds and never blocks, a plain lock is many times
    faster: see ``docs/design/singular.md``.

    :raises ConfigurationError: the handler is not a plain function, or an option cannot be used.

    Source: M. Fowler's and U. Joshi's pattern "Singular Update Queue".
    """

    @overload
    def __init__(
        self, handler: Callable[[R], S], *, max_batch: None = ..., **options: Unpack[Options]
    ) -> None: ...
    @overload
    def __init__(
        self,
        handler: Callable[[list[R]], Iterable[S]],
        *,
        max_batch: int,
        **options: Unpack[Options],
    ) -> None: ...
    @overload
    def __init__(
        self: SingularUpdateQueue[R, None],
        handler: Callable[[list[R]], None],
        *,
        max_batch: int,
        **options: Unpack[Options],
    ) -> None: ...
    def __init__(
        self,
        handler: Callable[[Any], Any],
        *,
        name: str | None = None,
        capacity: int | None = CAPACITY,
        timeout_s: float | None = None,
        deadline_s: float | None = None,
        on_error: OnError = log_failure,
        max_batch: int | None = None,
    ) -> None:
        require(
            instance("name", name, str | None),
            timeout("timeout_s", timeout_s),
            timeout("deadline_s", deadline_s),
            at_least("capacity", capacity, 1, or_none="for no bound"),
            at_least("max_batch", max_batch, 1, or_none="for one by one"),
            plain_function("handler", handler),
            plain_function("on_error", on_error),
        )
        self.name = name or f"singular-{next(_numbers)}"
        self.capacity = capacity
        self._timeout_s = timeout_s
        self._deadline_s = deadline_s
        parts = (self.name, handler, on_error, capacity)
        self._writer = (
            Writer(*parts) if max_batch is None else BatchWriter(*parts, max_batch=max_batch)
        )
        self._inbox = self._writer.inbox
        self._put_now = self._inbox.put_now
        self._next: SingularUpdateQueue[Any, Any] | None = None
        dropped = weakref.finalize(self, self._inbox.close, self._writer._closed)
        dropped.atexit = False  # the writer drains it then
        offer_figures(FigureSource.SINGULAR, name or "singular", self, _figures)

    def submit(
        self, request: R, deadline_s: float | None = AS_SET, timeout_s: float | None = AS_SET
    ) -> RequestFuture[S]:
        """Let ``request`` be applied; return the future of its outcome, which can be awaited, too.

        ``deadline_s`` and ``timeout_s`` replace those of the queue; ``None`` means no deadline, and
        a wait for ever. If the queue is full this blocks; in a coroutine use :meth:`call`.

        :raises QueueFull: there was no room within ``timeout_s`` seconds.
        :raises QueueClosed: the queue is closed.
        :raises ConfigurationError: ``deadline_s`` or ``timeout_s`` is not a time.
        """
        wait_s = self._timeout_s if timeout_s is AS_SET else self._wait_s(timeout_s)
        entry = self._submitted(request, deadline_s)
        self._put(entry, wait_s)
        return entry.future

    def post(
        self, request: R, deadline_s: float | None = AS_SET, timeout_s: float | None = AS_SET
    ) -> None:
        """Do what :meth:`submit` does, without a future: what the handler raises reaches
        ``on_error``.
        """
        item: Any = request
        wait_s = self._timeout_s if timeout_s is AS_SET else self._wait_s(timeout_s)
        if deadline_s is not AS_SET or self._deadline_s is not None:
            item = self._submitted(request, deadline_s)
        if not self._put_now(item):
            self._inbox.put(item, wait_s)
        elif self._inbox.has_ended:
            self._writer.sweep(_LATE)

    async def apost(
        self, request: R, deadline_s: float | None = AS_SET, timeout_s: float | None = AS_SET
    ) -> None:
        """Do what :meth:`post` does, in asyncio; the event loop goes on meanwhile, also if the
        queue is full.

        If the task is cancelled just after the request got in, the request is still applied.
        """
        wait_s = self._wait_s(timeout_s)
        await self._aput(self._submitted(request, deadline_s), wait_s)

    async def call(
        self, request: R, deadline_s: float | None = AS_SET, timeout_s: float | None = AS_SET
    ) -> S:
        """Let ``request`` be applied and return its outcome, in asyncio; the event loop goes on
        meanwhile, also if the queue is full. If the task is cancelled, the request is cancelled,
        too, unless it was begun.
        """
        wait_s = self._wait_s(timeout_s)
        entry = self._submitted(request, deadline_s)
        future: RequestFuture[S] = entry.future
        try:
            await self._aput(entry, wait_s)
        except BaseException:
            future.cancel()  # it may have been let in just before
            raise
        return await future

    def post_back(self, as_request: Callable[[T], R]) -> Callable[[T], None]:
        """Return a callback for other systems, which may call it on any thread. It makes a request
        of its argument, by ``as_request``, and posts the request here.

        ::

            client.send(update).add_done_callback(queue.post_back(Sent))

        The callback never raises: what cannot be posted reaches ``on_error``. If the queue is full
        it blocks for ``timeout_s``.
        """
        require(plain_function("as_request", as_request))

        def send(outcome: T) -> None:
            request: Any = outcome
            try:
                request = as_request(outcome)
                self.post(request)
            except Exception as error:  # noqa: BLE001 - reaches the listener
                self._writer.tell(request, error)

        return send

    def then(
        self, other: SingularUpdateQueue[T, U], as_request: Callable[[S], T] | None = None
    ) -> SingularUpdateQueue[T, U]:
        """Make each outcome a request of ``other`` (by ``as_request``, if given); return ``other``,
        so that chains read in order.

        A request keeps its future through the chain: the future's outcome is that of the last
        queue. If ``other`` is full, this queue's writer waits, whatever the ``timeout_s`` of
        ``other``; so this queue fills up, and its producers wait as well. If ``other`` is closed,
        the request has failed in this queue. Close a chain from its head.

        :raises ConfigurationError: the queue has begun to work, has a next queue, or the chain
            would be a ring.
        """
        ahead: SingularUpdateQueue[Any, Any] | None = other
        while ahead is not None and ahead is not self:
            ahead = ahead._next
        if ahead is not None:
            raise ConfigurationError(
                f"queue {self.name!r}: then({other.name!r}) would make a ring, which fills up and"
                " stands still"
            )
        if self._writer.pid or self._next is not None:
            raise ConfigurationError(
                f"queue {self.name!r}: call then() once, and before the first request"
            )
        if as_request is not None:
            require(plain_function("as_request", as_request))
        self._next = other
        self._writer.pass_on = other._receiver(as_request)
        return other

    def start(self) -> None:
        """Start the writer's thread; the first request does so too. May be called again."""
        self._writer.start()

    def close(self, *, drain: bool = True, timeout_s: float | None = None) -> bool:
        """Accept nothing more, and wait until the writer has applied everything accepted; or,
        without ``drain``, cancel what is not begun.

        Returns whether all is done. It is ``False`` if that takes more than ``timeout_s`` seconds
        (the writer goes on: call again to wait longer, or with ``drain=False`` to cancel the rest);
        if the handler gave up (see :attr:`failure`); if the handler itself calls this, which cannot
        wait for its own end; and in a process forked from that of the queue. May be called again.
        """
        require(timeout("timeout_s", timeout_s))
        return self._writer.close(drain=drain, timeout_s=timeout_s)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        return self._inbox.is_closed

    @property
    def failure(self) -> BaseException | None:
        """The ``SystemExit`` or ``KeyboardInterrupt`` by which the handler ended the queue."""
        return self._writer.failure

    @property
    def depth(self) -> int:
        return self._inbox.depth

    def stats(self) -> Stats:
        return self._writer.stats()

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "working" if self._writer.pid else "new"
        return f"<{type(self).__name__} {self.name!r}, {state}, {self.depth} waiting>"

    def _submitted(self, request: R, deadline_s: float | None) -> TrackedRequest:
        in_s = self._deadline_s
        if deadline_s is not AS_SET:
            require(timeout("deadline_s", deadline_s))
            in_s = deadline_s
        expiry_s = None if in_s is None else clock.now_s() + in_s
        return TrackedRequest(request, RequestFuture(self._inbox, expiry_s))

    def _put(self, item: Any, wait_s: float | None) -> None:
        if not self._put_now(item):
            self._inbox.put(item, wait_s)
        elif self._inbox.has_ended:
            self._writer.sweep(_LATE)

    async def _aput(self, item: Any, wait_s: float | None) -> None:
        if not self._put_now(item):
            await self._inbox.put_async(item, wait_s)
        elif self._inbox.has_ended:
            self._writer.sweep(_LATE)

    def _receiver(
        self, as_request: Callable[[Any], Any] | None
    ) -> Callable[[Any, TrackedRequest | None], None]:
        """Return the function that the queue before this one in a chain calls with its outcomes."""

        def receive(outcome: Any, entry: TrackedRequest | None) -> None:
            request = outcome if as_request is None else as_request(outcome)
            if entry is None:
                self.post(request, timeout_s=None)
                return
            entry.future.inbox = self._inbox
            self._put(TrackedRequest(request, entry.future, is_begun=True), None)

        return receive

    def _wait_s(self, timeout_s: float | None) -> float | None:
        if timeout_s is AS_SET:
            return self._timeout_s
        require(timeout("timeout_s", timeout_s))
        return timeout_s
