"""The one thread that applies requests, one by one or in batches, in the order they came in.

What happens on a failure:

=================================  ===============================================================
the handler raises                 the request (or batch) failed: its future and the listener get
                                   the error; the queue goes on
SystemExit, KeyboardInterrupt      the queue is closed, because the handler wants out, and what it
                                   owns may be half changed; then as above, and what is not begun is
                                   cancelled
the listener or a callback raises  logged; the queue goes on
the writer itself is at fault      as for SystemExit
the process forks                  the child's copy is closed: the thread is the parent's
the interpreter exits              what nobody closed is drained, ten seconds for all at most
=================================  ===============================================================
"""

from __future__ import annotations

import atexit
import logging
import os
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat, starmap
from typing import Any

from leaderq.base import clock, host
from leaderq.base.arguments import require_finished
from leaderq.errors import LeaderqError, QueueClosed, RequestCancelled
from leaderq.singular.request import TrackedRequest
from leaderq.threads import Inbox, Service, primitives
from leaderq.threads.inbox import STOP
from leaderq.threads.waker import bounded_s

log = logging.getLogger(__name__)

AT_EXIT_S = 10.0
"""How long the queues that nobody closed may take, together, when the interpreter exits."""
FATAL = (SystemExit, KeyboardInterrupt)

OnError = Callable[[Any, BaseException], object]
PassOn = Callable[[Any, TrackedRequest | None], object]


@dataclass(frozen=True)
class Stats:
    """The figures of a queue at one moment. While the queue is idle,
    ``accepted == applied + failed + expired + cancelled``; while it works, ``depth`` and
    ``in_hand`` belong to the sum.

    *Not guaranteed:* that the figures fit each other exactly while the writer works: a request may
    be counted twice, or not at all, for an instant.
    """

    depth: int
    """Requests that wait."""
    in_hand: int
    """Requests that the handler works on now: 0 or 1, or a batch."""
    waiting: int
    """Producers that wait for room."""
    accepted: int
    """Requests that got in."""
    applied: int
    failed: int
    """Requests for which the handler raised, or whose outcome the next queue did not take."""
    expired: int
    """Requests not begun by their deadline."""
    cancelled: int
    """Requests cancelled by whoever submitted them, or because the queue was closed."""
    refused: int
    """Requests that did not get in: no room in time, or the queue was closed."""


class Writer:
    """Applies the requests of ``inbox``, until the inbox is closed and empty.

    ``pass_on(outcome, entry)``, if set, passes each outcome to the next queue of a chain. The
    thread starts with the first request. It has a reference to the writer only, not to the queue:
    so a queue that is dropped without being closed is drained, and leaves no thread behind.
    """

    def __init__(
        self, name: str, handler: Callable[[Any], Any], on_error: OnError, capacity: int | None
    ) -> None:
        self.inbox: Inbox[Any] = Inbox(name, capacity, start=self.start)
        self.pid = 0
        """The process in which the thread runs, once it was started."""
        self.pass_on: PassOn | None = None
        self.failure: BaseException | None = None
        """The error that made the writer give up, if it did."""
        self._handler = handler
        self._on_error = on_error
        self._service = Service(f"leaderq-{name}", lambda _: self._run())
        self._ended = primitives.Event()
        self._swept: deque[Any] = deque()
        # Each request that is taken out is begun; it is done before anybody is told of its end.
        self._begun = self._done = self._failed = self._expired = self._cancelled = 0
        self._swept_count = 0

    def start(self) -> None:
        if self.pid or self.inbox.is_closed:
            return
        if self._service.start():
            self.pid = host.pid()
            _running.add(self)

    def close(self, *, drain: bool, timeout_s: float | None) -> bool:
        if self.inbox.is_foreign:
            return False
        self.inbox.close(self._closed)
        if not self.pid:
            return True
        if not drain:
            self.sweep("the queue was closed")
        if self._service.is_current or not self._ended.wait(
            None if timeout_s is None else bounded_s(timeout_s)
        ):
            return False
        self._service.stop()
        return self.failure is None

    def renounce(self) -> None:
        """Close the inbox in a forked child: the thread, and all requests, belong to the parent."""
        why = f"queue {self.inbox.name!r} belongs to process {self.pid}, a fork's parent"
        self.inbox.renounce(lambda: QueueClosed(f"{why}; make a queue here"))

    def stats(self) -> Stats:
        inbox, done = self.inbox, self._done
        begun, depth, swept = self._begun, inbox.depth, self._swept_count
        return Stats(
            depth=depth,
            in_hand=begun - done,
            waiting=len(inbox.waiting),
            accepted=begun + depth + swept,
            applied=done - self._failed - self._expired - self._cancelled,
            failed=self._failed,
            expired=self._expired,
            cancelled=self._cancelled + swept,
            refused=inbox.refused,
        )

    def _run(self) -> None:
        inbox = self.inbox
        inbox.taker = primitives.get_ident()
        try:
            self._apply_all()
        finally:
            if (error := self.failure) is not None:
                log.critical("queue gave up name=%s error=%r", inbox.name, error, exc_info=error)
            inbox.close(self._closed)
            inbox.has_ended = True
            self.sweep("its handler gave up" if error else "the queue was closed")
            inbox.taker = 0
            _running.discard(self)
            self._ended.set()

    def _apply_all(self) -> None:
        item: Any = STOP
        inbox, handler, pass_on = self.inbox, self._handler, self.pass_on
        release_permit, waiting = inbox.release_permit, inbox.waiting
        try:
            for item in starmap(inbox.take, repeat(())):
                if waiting or inbox.beyond:
                    inbox.release(1)
                else:
                    release_permit(None)
                if item is STOP:
                    return
                self._begun += 1
                if type(item) is TrackedRequest:
                    self._apply_entry(item)
                else:
                    try:
                        outcome = handler(item)
                        if pass_on is not None:
                            pass_on(outcome, None)
                    except BaseException as error:  # noqa: BLE001 - reaches the listener
                        self._fail(item, error)
                    else:
                        self._done += 1
                        continue
                if self.failure is not None:
                    return
        except BaseException as error:  # noqa: BLE001 - no handler raised it; waiters must hear
            self._give_up(() if item is STOP else (item,), error)

    def _apply_entry(self, entry: TrackedRequest) -> None:
        if not entry.begin():
            self._pass_over(entry)
            return
        try:
            outcome = self._handler(entry.request)
        except BaseException as error:  # noqa: BLE001 - reaches future and listener
            self._fail(entry.request, error, entry)
        else:
            self._end(entry.request, entry, outcome)

    def _end(self, request: Any, entry: TrackedRequest | None, outcome: Any) -> None:
        """Pass the outcome to the next queue, or to its future."""
        if self.pass_on is not None:
            try:
                self.pass_on(outcome, entry)
            except BaseException as error:  # noqa: BLE001 - reaches future and listener
                self._fail(request, error, entry)
                return
        self._done += 1
        if self.pass_on is None and entry is not None:
            entry.future.settle(outcome)

    def _pass_over(self, entry: TrackedRequest) -> None:
        self._done += 1
        if (error := entry.future.expired) is not None:
            self._expired += 1
            self.tell(entry.request, error)
        else:
            self._cancelled += 1

    def _fail(
        self, request: Any, error: BaseException, entry: TrackedRequest | None = None
    ) -> None:
        self._failed += 1
        self._done += 1
        if isinstance(error, FATAL):  # before anybody hears of it, and posts more
            self.failure = error
            self.inbox.close(self._closed)
        self.tell(request, error)
        if entry is not None:
            entry.future.settle(None, error)

    def _give_up(self, items: Sequence[Any], error: BaseException) -> None:
        """Fail everything that the writer works on, because the writer itself has failed."""
        self.failure = error
        for item in items:
            if type(item) is not TrackedRequest:
                self._fail(item, error)
            elif not item.future.done() and (item.future.running() or item.begin()):
                self._fail(item.request, error, item)

    def tell(self, request: Any, error: BaseException) -> None:
        try:
            require_finished(self._on_error(request, error), "on_error")
        except BaseException as failure:  # the queue must outlive its listener
            if isinstance(failure, KeyboardInterrupt) and not self.inbox.is_taken_here:
                raise  # Ctrl-C, in a thread that closes the queue
            log.exception("listener of a queue failed name=%s", self.inbox.name)

    def _closed(self) -> LeaderqError:
        error = QueueClosed(f"queue {self.inbox.name!r} is closed; the request was not accepted")
        error.__cause__ = self.failure
        return error

    def sweep(self, why: str) -> None:
        """Cancel all requests that are not begun; if this is interrupted, the next sweep cancels
        the rest.
        """
        self.inbox.empty(self._swept)
        count = 0
        while self._swept:
            try:
                item = self._swept.popleft()
            except IndexError:
                break  # another thread sweeps too
            self._swept_count += 1
            count += 1
            self._cancel(item, f"queue {self.inbox.name!r}: not begun: {why}")
        if count:
            log.warning("requests cancelled name=%s count=%d why=%r", self.inbox.name, count, why)

    def _cancel(self, item: Any, why: str) -> None:
        error = RequestCancelled(why)
        if type(item) is not TrackedRequest:
            self.tell(item, error)
            return
        future = item.future
        if not future.done():  # otherwise its owner knows
            self.tell(item.request, error)
        if item.is_begun:  # it comes from the queue before this one, too late to cancel it
            future.settle(None, error)
        else:
            future.cancel()
            future.begin()  # tells concurrent.futures.wait()


class BatchWriter(Writer):
    """Applies up to ``max_batch`` waiting requests at once. The handler returns an outcome for
    each, in their order, or ``None``; if an outcome is an exception, its request has failed.

    A batch never waits to grow: a single request is applied at once, and the more requests wait,
    the larger the batches are.
    """

    def __init__(self, *parts: Any, max_batch: int) -> None:
        super().__init__(*parts)
        self._max_batch = max_batch

    def _apply_all(self) -> None:
        items: list[Any] = []
        inbox = self.inbox
        try:
            while self.failure is None:
                inbox.take_all(items, self._max_batch)
                inbox.release(len(items))
                if is_last := items[-1] is STOP:
                    items.pop()
                self._begun += len(items)
                self._apply_batch(items)
                items = []
                if is_last:
                    return
        except BaseException as error:  # noqa: BLE001 - no handler raised it; waiters must hear
            self._give_up(items, error)

    def _apply_batch(self, items: list[Any]) -> None:
        entries: list[TrackedRequest | None] = []
        requests: list[Any] = []
        for item in items:
            entry = item if type(item) is TrackedRequest else None
            if entry is not None and not entry.begin():
                self._pass_over(entry)
            else:
                entries.append(entry)
                requests.append(item if entry is None else entry.request)
        if not requests:
            return
        outcomes: Iterable[Any]
        try:
            # a copy, because the handler may use its list up
            outcomes = _one_each(self._handler(requests.copy()), len(requests))
        except BaseException as error:  # noqa: BLE001 - reaches futures and listener
            outcomes = repeat(error, len(requests))
        for request, entry, outcome in zip(requests, entries, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                self._fail(request, outcome, entry)
            else:
                self._end(request, entry, outcome)


def _one_each(outcomes: Iterable[Any] | None, count: int) -> Iterable[Any]:
    if outcomes is None:
        return repeat(None, count)
    given = list(outcomes)
    if len(given) != count:
        raise ValueError(
            f"the batch handler returned {len(given)} outcomes for {count} requests; "
            "return one for each, in their order, or None"
        )
    return given


_running: weakref.WeakSet[Writer] = weakref.WeakSet()


def _renounce_all() -> None:
    for writer in list(_running):
        writer.renounce()
    _running.clear()


def _close_all() -> None:
    until_s = clock.now_s() + AT_EXIT_S
    for writer in list(_running):
        is_drained = writer.close(drain=True, timeout_s=max(0.0, until_s - clock.now_s()))
        if not is_drained and writer.failure is None:
            log.error(
                "queue not closed at exit name=%s lost=%d", writer.inbox.name, writer.inbox.depth
            )


os.register_at_fork(after_in_child=_renounce_all)
atexit.register(_close_all)
