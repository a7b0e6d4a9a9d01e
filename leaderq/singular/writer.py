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

from leaderq import clock, host
from leaderq.errors import LeaderqError, QueueClosed, RequestCancelled
from leaderq.singular.mailbox import STOP, Mailbox
from leaderq.singular.request import Home, TrackedRequest
from leaderq.threads import Service, primitives
from leaderq.threads.waker import bounded_s

log = logging.getLogger(__name__)

AT_EXIT_S = 10.0
"""How long the queues that nobody closed may take, together, when the interpreter exits."""
FATAL = (SystemExit, KeyboardInterrupt)

OnError = Callable[[Any, BaseException], object]
PassOn = Callable[[Any, TrackedRequest | None], object]


@dataclass(frozen=True)
class Stats:
    """A queue at one moment. While it is idle
    ``accepted == applied + failed + expired + cancelled``; else add ``depth`` and ``in_hand``.

    *Not guaranteed:* while the writer works a request may be counted in two of these, or in none,
    for an instant.
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
    """Applies what comes into ``mailbox``, until that is closed and empty.

    ``pass_on(outcome, entry)``, if set, hands each outcome to the next queue of a chain. The
    thread starts with the first request, and knows the writer only: a queue that is dropped
    without being closed is drained and leaves no thread behind.
    """

    def __init__(
        self, name: str, handler: Callable[[Any], Any], on_error: OnError, capacity: int | None
    ) -> None:
        self.home = Home(name)
        self.mailbox = Mailbox(self.home, capacity)
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

    @property
    def is_started(self) -> bool:
        return self.home.pid != 0

    def start(self) -> None:
        if self.home.pid or self.mailbox.is_closed:
            return
        if self._service.start():
            self.home.pid = host.pid()
            _running.add(self)
        self.mailbox.open()

    def close(self, *, drain: bool, timeout_s: float | None) -> bool:
        if self.home.is_foreign:
            return False
        self.mailbox.close(self._closed)
        if not self.home.pid:
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
        """In a forked child: the thread, and all requests, are the parent's."""
        self.home.is_foreign = True
        pid, name = self.home.pid, self.home.name
        why = f"queue {name!r} belongs to process {pid}, a fork's parent; make a queue here"
        self.mailbox.renounce(lambda: QueueClosed(why))

    def stats(self) -> Stats:
        mailbox, done = self.mailbox, self._done
        begun, depth, swept = self._begun, mailbox.depth, self._swept_count
        return Stats(
            depth=depth,
            in_hand=begun - done,
            waiting=len(mailbox.waiting),
            accepted=begun + depth + swept,
            applied=done - self._failed - self._expired - self._cancelled,
            failed=self._failed,
            expired=self._expired,
            cancelled=self._cancelled + swept,
            refused=mailbox.refused,
        )

    def _run(self) -> None:
        self.home.thread = primitives.get_ident()
        try:
            self._apply_all()
        finally:
            if self.failure is not None:
                log.critical(
                    "queue gave up name=%s error=%r",
                    self.home.name,
                    self.failure,
                    exc_info=self.failure,
                )
            self.mailbox.close(self._closed)
            self.mailbox.has_ended = True
            self.sweep("its handler gave up" if self.failure else "the queue was closed")
            self.home.thread = 0
            _running.discard(self)
            self._ended.set()

    def _apply_all(self) -> None:
        item: Any = STOP
        mailbox, handler, pass_on = self.mailbox, self._handler, self.pass_on
        release_permit, beyond, waiting = mailbox.release_permit, mailbox.beyond, mailbox.waiting
        try:
            for item in starmap(mailbox.take, repeat(())):
                if waiting or beyond:
                    mailbox.release(1)
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
            self.mailbox.close(self._closed)
        self.tell(request, error)
        if entry is not None:
            entry.future.settle(None, error)

    def _give_up(self, items: Sequence[Any], error: BaseException) -> None:
        """The writer itself is at fault: everything it has in hand failed."""
        self.failure = error
        for item in items:
            if type(item) is not TrackedRequest:
                self._fail(item, error)
            elif not item.future.done():
                item.begin()
                self._fail(item.request, error, item)

    def tell(self, request: Any, error: BaseException) -> None:
        try:
            self._on_error(request, error)
        except BaseException as failure:  # the queue must outlive its listener
            if isinstance(failure, KeyboardInterrupt) and not self.home.is_mine:
                raise  # Ctrl-C, in a thread that closes the queue
            log.exception("listener of a queue failed name=%s", self.home.name)

    def _closed(self) -> LeaderqError:
        error = QueueClosed(f"queue {self.home.name!r} is closed; the request was not accepted")
        error.__cause__ = self.failure
        return error

    def sweep(self, why: str) -> None:
        """Cancel all requests not begun. After an interrupt, the next sweep cancels the rest."""
        self.mailbox.sweep(self._swept)
        count = 0
        while self._swept:
            try:
                item = self._swept.popleft()
            except IndexError:
                break  # another thread sweeps too
            self._swept_count += 1
            count += 1
            self._cancel(item, f"queue {self.home.name!r}: not begun: {why}")
        if count:
            log.warning("requests cancelled name=%s count=%d why=%r", self.home.name, count, why)

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
    """Applies all that waits at once, at most ``max_batch``. The handler returns an outcome for
    each request, in their order, or ``None``; an outcome that is an exception fails its request.

    A batch never waits to grow: alone a request goes at once, and the more the writer falls
    behind, the larger the batches are.
    """

    def __init__(self, *parts: Any, max_batch: int) -> None:
        super().__init__(*parts)
        self._max_batch = max_batch

    def _apply_all(self) -> None:
        items: list[Any] = []
        mailbox = self.mailbox
        try:
            while self.failure is None:
                items = [mailbox.take()]
                try:
                    while items[-1] is not STOP and len(items) < self._max_batch:
                        items.append(mailbox.take_at_once())
                except primitives.Empty:
                    pass
                mailbox.release(len(items))
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
                "queue not closed at exit name=%s lost=%d", writer.home.name, writer.mailbox.depth
            )


os.register_at_fork(after_in_child=_renounce_all)
atexit.register(_close_all)
