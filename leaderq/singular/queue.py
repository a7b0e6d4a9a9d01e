"""The queue that users see: many submit, one thread applies.

The writer's thread is authoritative: what the handler owns is touched on that thread and nowhere else. States: new ->
working -> closed (nothing gets in; the writer goes on with what is in) -> over (the writer has ended). The thread
starts with the first request, so a queue made before a fork works in the child if it was not used before.

No request that got in vanishes: it is applied, or its ticket and the listener are told why not. That holds for the one
put by a thread that found the gate open and was held up until the writer had ended: who puts looks afterwards whether
the writer is over, and the writer looks into the line after it has said that it is; one of the two finds it.
"""

from __future__ import annotations

import logging
import math
import os
import threading
from collections.abc import Callable, Iterable
from itertools import count
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from leaderq.clock import now_s
from leaderq.errors import ConfigurationError, LeaderqError, QueueClosed
from leaderq.singular import processes
from leaderq.singular.account import Account, Stats
from leaderq.singular.batches import BatchWriter
from leaderq.singular.gate import Gate
from leaderq.singular.options import check, log_failure
from leaderq.singular.ticket import Entry, Ticket
from leaderq.singular.waits import Writing
from leaderq.singular.writer import STOP, Listener, Writer

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

    from leaderq.singular.options import Options

log = logging.getLogger(__name__)

R = TypeVar("R")
S = TypeVar("S")
T = TypeVar("T")
U = TypeVar("U")

_numbers = count(1)


class SingularUpdateQueue(Generic[R, S]):
    """Applies requests one at a time, in the order in which they came, on one thread; those who submit do not wait for
    one another.

    ``handler(request)`` gives the outcome. It alone touches the state that it owns, so that needs no lock.

    - ``capacity``: how many may wait; ``None``, as many as memory holds. When so many do, the queue is full until no
      more than ``low`` wait (half of ``capacity`` unless given).
    - ``wait_s``: how long :meth:`submit` and :meth:`post` wait for room: for ever, unless given; 0: not at all.
    - ``deadline_s``: seconds in which a request must be begun, unless it comes with its own; ``None``: any.
    - ``max_batch``: if given, the handler takes a list of up to so many requests, all that stand in the line, and gives
      an outcome for each, in their order (an exception: that request failed), or ``None``.
    - ``on_error(request, error)``: told of each request that got in and was not applied, unless its owner cancelled it;
      logs, unless given. It runs on the writer's thread, or on that which closes the queue.

    *Guarantees:* one request at a time, each at most once; the requests of one thread in its order, and of all threads
    in that in which they got in; who waits for room gets it in the order of coming; a request that got in is applied,
    or its ticket and the listener get the error. A queue left open is drained when the interpreter exits, for ten
    seconds at most.
    *Not guaranteed:* anything after the death of the process: nothing is on disk. Producers that come at the same
    instant may exceed ``capacity`` by one each, less one; a handler's own requests to its queue get in beyond it, for
    only it could make room. (A closed queue takes no more of these either, or closing might never end.)

    Callbacks of other systems (a client library, a timer) must not touch the handler's state, for they run on other
    threads: let them submit the outcome back, as :meth:`post_back` does.

    When the section to protect takes microseconds and never blocks, a plain lock is many times faster: see
    ``docs/design/singular.md``.

    Source: M. Fowler's and U. Joshi's pattern "Singular Update Queue".
    """

    @overload
    def __init__(self, handler: Callable[[R], S], *, max_batch: None = ..., **options: Unpack[Options]) -> None: ...
    @overload
    def __init__(self, handler: Callable[[list[R]], Iterable[S]], *, max_batch: int, **options: Unpack[Options]) -> None: ...
    @overload
    def __init__(
        self: SingularUpdateQueue[R, None], handler: Callable[[list[R]], None], *, max_batch: int, **options: Unpack[Options]
    ) -> None: ...
    def __init__(
        self,
        handler: Callable[[Any], Any],
        *,
        name: str | None = None,
        capacity: int | None = None,
        low: int | None = None,
        wait_s: float = math.inf,
        deadline_s: float | None = None,
        on_error: Listener = log_failure,
        max_batch: int | None = None,
    ) -> None:
        check(handler, capacity, low, wait_s, deadline_s, max_batch)
        self.name = name or f"singular-{next(_numbers)}"
        self.capacity = capacity
        self._wait_s = wait_s
        self._deadline_s = deadline_s
        self._writing = Writing(self.name)
        self._line: SimpleQueue[Any] = SimpleQueue()
        low = (capacity or 0) // 2 if low is None else low
        self._gate = Gate(self._line, self._writing, capacity=capacity, low=low)
        self._account = Account(self._line)
        parts = (self._line, self._gate, self._account, handler, on_error)
        self._writer = Writer(*parts) if max_batch is None else BatchWriter(*parts, max_batch=max_batch)
        self._lifecycle = threading.RLock()
        self._thread: threading.Thread | None = None
        self._next: SingularUpdateQueue[Any, Any] | None = None
        # Bound once: a look-up for each request would cost as much as the call.
        self._put = self._line.put
        self._qsize = self._line.qsize
        if deadline_s is None and type(self).post is SingularUpdateQueue.post:
            # Two quick forms of the same, for to ask at each request which one is needed would cost more than putting it.
            self.post = self._post_unbounded if capacity is None else self._post_bounded  # type: ignore[method-assign]

    # -- requests ----------------------------------------------------------------------------------------------------

    def submit(self, request: R, deadline_s: float | None = None, wait_s: float | None = None) -> Ticket[S]:
        """Have ``request`` applied; gives the future of its outcome, a :class:`concurrent.futures.Future` that can be
        awaited too.

        ``deadline_s`` and ``wait_s`` stand for those of the queue. If the queue is full this blocks; in a coroutine use
        :meth:`call`.

        :raises QueueFull: no room within ``wait_s`` seconds. :raises QueueClosed: the queue is closed.
        :raises WouldDeadlock: room could only be made by the calling thread, in a ring of queues.
        """
        ticket: Ticket[S] = Ticket(request, self._writing, self._expiry_s(deadline_s))
        self._enter(Entry(ticket), wait_s)
        return ticket

    def post(self, request: R, deadline_s: float | None = None, wait_s: float | None = None) -> None:
        """Have ``request`` applied, without a future: nothing is allocated (unless a deadline is to be kept). Otherwise
        as :meth:`submit`.

        What the handler raises reaches ``on_error``.
        """
        expiry_s = self._expiry_s(deadline_s)
        self._enter(request if expiry_s is None else Entry(Ticket(request, self._writing, expiry_s)), wait_s)

    async def call(self, request: R, deadline_s: float | None = None, wait_s: float | None = None) -> S:
        """Have ``request`` applied and wait for its outcome, in an asyncio loop, which goes on meanwhile, also if the
        queue is full.

        To cancel the task cancels the request, unless it is begun. Raises as :meth:`submit`, and what the handler raises.
        """
        ticket: Ticket[S] = Ticket(request, self._writing, self._expiry_s(deadline_s))
        if not self._entered(Entry(ticket)):
            self.start()
            try:
                await self._gate.enter_async(Entry(ticket), self._wait_s if wait_s is None else wait_s)
            except BaseException:
                ticket.cancel()  # a cancelled task may have been let in just before
                raise
        return await ticket

    def post_back(self, as_request: Callable[[T], R]) -> Callable[[T], None]:
        """A callback for other systems, to be called on any thread: makes a request of what it is called with, and
        posts it here.

        ::

            client.send(update).add_done_callback(queue.post_back(Sent))

        It never raises into the caller: what cannot be posted reaches ``on_error``. If the queue is full it blocks (for
        ``wait_s``).
        """

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
        """Have each outcome become a request of ``other`` (made by ``as_request``, if given); gives ``other``, so that
        chains read in order.

        A ticket goes along: its outcome is that of the last queue. If ``other`` is full this queue's writer waits,
        whatever the ``wait_s`` of ``other``; so this queue fills up, and its producers wait in turn. If ``other`` is
        closed, the request failed here. Close a chain from its head.

        :raises ConfigurationError: the queue works already, has a next one already, or the chain would be a ring.
        """
        with self._lifecycle:
            ahead: SingularUpdateQueue[Any, Any] | None = other
            while ahead is not None and ahead is not self:
                ahead = ahead._next
            if ahead is not None:
                raise ConfigurationError(
                    f"queue {self.name!r}: then({other.name!r}) would make a ring, which fills up and stands still"
                )
            if self._thread is not None or self._next is not None:
                raise ConfigurationError(f"queue {self.name!r}: call then() once, and before the first request")
            self._next = other
            self._writer.pass_on = other._receiver(as_request)
        return other

    # -- life --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the writer's thread; the first request does so too. May be called again."""
        if self._thread is None:
            self._start_once()

    def _start_once(self) -> None:
        with self._lifecycle:
            if self._thread is None and not self._gate.is_shut:
                self._writing.pid = os.getpid()
                # A daemon: an interpreter that exits would wait for ever for a queue that nobody closed. processes.py
                # drains it instead.
                thread = threading.Thread(target=self._write, name=f"leaderq-{self.name}", daemon=True)
                thread.start()
                self._thread = thread
                processes.watch(self)
                self._gate.open()

    def close(self, *, drain: bool = True, timeout_s: float | None = None) -> bool:
        """Let nothing in any more, and wait until the writer has applied what is in; or, without ``drain``, cancel what
        is not begun.

        Gives whether all is done: ``False`` if that takes more than ``timeout_s`` seconds (it goes on: call again to
        wait on, or with ``drain=False`` to give up the rest), if the handler gave up (see :attr:`failure`), if called
        by the handler itself, which cannot wait for its own end, or in a process forked from that of the queue. May be
        called again.
        """
        if self._writing.pid not in (0, os.getpid()):
            return False
        self._gate.shut(self._closed)
        with self._lifecycle:
            thread = self._thread
            if thread is None:
                return True
            if not self._gate.is_over:
                self._account.put_stop(STOP)
        if not drain:
            self._sweep("the queue was closed")
        if self._writing.is_mine():
            return False
        thread.join(timeout_s)
        return not thread.is_alive() and self.failure is None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Close, and wait until all that got in is applied."""
        self.close()

    # -- what can be seen --------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether nothing gets in any more."""
        return self._gate.is_shut

    @property
    def failure(self) -> BaseException | None:
        """What the handler raised to get out (``SystemExit``, ``KeyboardInterrupt``); then the queue closed itself."""
        return self._writer.failure

    @property
    def depth(self) -> int:
        """How many requests wait in the line."""
        return self._account.depth()

    @property
    def oldest_age_s(self) -> float:
        """How long the oldest of them has waited; see :attr:`Stats.oldest_age_s`."""
        return self._account.oldest_age_s()

    @property
    def rate_per_s(self) -> float:
        """Requests ended per second, over the last ten seconds."""
        return self._account.rate_per_s()

    def stats(self) -> Stats:
        """All figures at this moment; see :class:`Stats`."""
        return self._account.stats(waiting=self._gate.waiting, refused=self._gate.refused)

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else "new" if self._thread is None else "working"
        return f"<{type(self).__name__} {self.name!r}, {state}, {self.depth} waiting>"

    # -- the way in --------------------------------------------------------------------------------------------------

    def _post_unbounded(self, request: R, deadline_s: float | None = None, wait_s: float | None = None) -> None:
        gate = self._gate
        if deadline_s is None and gate.room:
            self._put(request)
            if gate.is_over:
                self._sweep("the queue was closed while it got in")
        else:
            SingularUpdateQueue.post(self, request, deadline_s, wait_s)

    def _post_bounded(self, request: R, deadline_s: float | None = None, wait_s: float | None = None) -> None:
        gate = self._gate
        if deadline_s is None and self._qsize() < gate.room:
            self._put(request)
            if gate.is_over:
                self._sweep("the queue was closed while it got in")
        else:
            SingularUpdateQueue.post(self, request, deadline_s, wait_s)

    def _enter(self, item: Any, wait_s: float | None) -> None:
        if not self._entered(item):
            self.start()
            self._gate.enter(item, self._wait_s if wait_s is None else wait_s)

    def _entered(self, item: Any) -> bool:
        """The quick way in; whether it was open."""
        gate = self._gate
        if self._qsize() >= gate.room:
            return False
        self._put(item)
        if gate.is_over:
            self._sweep("the queue was closed while it got in")
        return True

    def _receiver(self, as_request: Callable[[Any], Any] | None) -> Callable[[Any, Ticket[Any] | None], None]:
        """What takes outcomes from the queue before this one in a chain."""

        def receive(outcome: Any, ticket: Ticket[Any] | None) -> None:
            request = outcome if as_request is None else as_request(outcome)
            if ticket is None:
                self.post(request, None, math.inf)
            else:
                ticket.request = request
                ticket.writing = self._writing
                self._enter(Entry(ticket), math.inf)

        return receive

    def _expiry_s(self, deadline_s: float | None) -> float | None:
        in_s = self._deadline_s if deadline_s is None else deadline_s
        return None if in_s is None else now_s() + in_s

    # -- the writer's thread, and its end ----------------------------------------------------------------------------

    def _write(self) -> None:
        self._writing.begin()
        try:
            self._writer.run()
        except BaseException as error:  # noqa: BLE001 - logged below; whatever it was, nothing may be left waiting
            self._writer.failure = error
        finally:
            failure = self._writer.failure
            if failure is not None:
                log.critical("queue %r gives up: its handler raised %r", self.name, failure, exc_info=failure)
            self._gate.shut(self._closed)
            self._gate.is_over = True
            self._sweep("its handler gave up" if failure is not None else "the queue was closed while it got in")
            self._writing.end()

    def _sweep(self, why: str) -> None:
        count = self._writer.sweep(f"the request was not begun in queue {self.name!r}: {why}")
        if count:
            log.warning("queue %r: %d requests that were not begun were cancelled: %s", self.name, count, why)

    def _closed(self) -> LeaderqError:
        error = QueueClosed(f"queue {self.name!r} is closed; the request was not taken")
        error.__cause__ = self.failure
        return error

    def renounce(self) -> None:
        """For ``processes``, in a child that was forked: the writer's thread, and all requests, are the parent's."""
        pid = self._writing.pid
        self._gate.renounce(
            lambda: QueueClosed(
                f"queue {self.name!r} belongs to process {pid}, from which this one was forked; make a queue here"
            )
        )

    def close_at_exit(self, timeout_s: float) -> None:
        """For ``processes``: nobody closed it, and the interpreter exits."""
        if not self.close(timeout_s=timeout_s) and self.failure is None:
            log.error(
                "queue %r was not closed; %d requests were not applied when the interpreter exited", self.name, self.depth
            )
