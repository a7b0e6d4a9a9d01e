"""The one thread that applies requests, in the order in which they came into the line.

It takes what stands in the line by the chunk, so that what has to be done now and then (let in who waits, look at the
clock) is done once for many, yet leaves each request in the line until its turn. In the line stand bare requests, which
were posted; entries with a ticket, which were submitted or have a deadline; and at last ``STOP``.

What happens on a failure:

=================================  ====================================================================================
the handler raises                 the request (or batch) failed: its ticket and the listener get the error; it goes on
SystemExit, KeyboardInterrupt      as above; then the queue is closed and all that is not begun is cancelled, for the
                                   handler wants out, and what it owns may be half changed
the listener or a callback raises  logged; it goes on
the writer itself is at fault      as for SystemExit
=================================  ====================================================================================
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat, starmap, takewhile
from operator import length_hint
from queue import Empty, SimpleQueue
from typing import Any

from leaderq.errors import RequestCancelled
from leaderq.singular.account import Account, Turns
from leaderq.singular.gate import Gate
from leaderq.singular.ticket import Entry, Ticket, is_interrupt
from leaderq.singular.waits import Writing

log = logging.getLogger(__name__)

STOP = Entry(Ticket(None, Writing("stop")))
"""The last in the line: the gate was shut before it was put there."""

FATAL = (SystemExit, KeyboardInterrupt)

Listener = Callable[[Any, BaseException], object]
PassOn = Callable[[Any, "Ticket[Any] | None"], object]


class Writer:
    """Applies requests one by one. ``pass_on(outcome, ticket)``, if set, gives an outcome to the next queue of a chain."""

    def __init__(
        self, line: SimpleQueue[Any], gate: Gate, account: Account, handler: Callable[[Any], Any], listener: Listener
    ) -> None:
        self.failure: BaseException | None = None
        """What made the writer give up, if it did."""
        self.pass_on: PassOn | None = None
        self._line = line
        self._gate = gate
        self._account = account
        self._handler = handler
        self._listener = listener
        self._taken = 0
        self._swept: deque[Any] = deque()
        self._out: Sequence[Any] = ()
        """What was taken out of the line last, so that not even a fault of the writer loses it."""

    def run(self) -> None:
        """Apply what comes, until ``STOP`` does or the handler wants out (then ``failure`` is set)."""
        try:
            while self._apply_chunk():
                pass
        except BaseException as error:  # noqa: BLE001 - no handler raised it; who waits must hear, and the queue ends
            self.failure = error
            self._abandon(error)
        self._account.rest(self._taken)

    def _apply_chunk(self) -> bool:
        """Apply what stands in the line, or what comes next if nothing does; whether more may follow."""
        first, turns = self._next()
        handler, pass_on = self._handler, self.pass_on
        # Never waits: this thread alone takes out; or else the queue was closed meanwhile, and then STOP comes.
        item = first
        try:
            for item in chain((first,), starmap(self._line.get, turns)):
                if type(item) is Entry:
                    if item is STOP:
                        self._taken -= 1
                        self._account.forget_stop()
                        return False
                    goes_on = self._answer(item.ticket, turns)
                else:
                    try:
                        outcome = handler(item)
                        if pass_on is not None:
                            pass_on(outcome, None)
                        continue
                    except BaseException as error:  # noqa: BLE001 - reaches the listener, and may end the writer
                        goes_on = self._failed(item, error)
                if not goes_on:
                    return False
            return True
        finally:
            self._out = (item,)
            self._taken -= length_hint(turns)

    def _next(self) -> tuple[Any, Turns]:
        """Wait for a request; it, and the turns of those behind it that belong to the chunk."""
        line, account, gate = self._line, self._account, self._gate
        account.rest(self._taken)
        was_idle = not line.qsize()
        if was_idle and gate.waiting:  # cannot be, as stride is chosen; if it were, both sides would wait for ever
            gate.relieve()
        self._out = ()
        first = line.get()
        self._out = (first,)
        count = self._relieved_depth()
        beyond = count - gate.low
        if beyond > 0:  # the next chunk shall begin with the request that brings the line down to the low mark
            count = beyond - 1
        count = min(count, gate.stride)
        turns = repeat((), count)
        self._taken += 1 + count
        account.begin(self._taken, turns, 1, was_idle=was_idle)
        return first, turns

    def _relieved_depth(self) -> int:
        """How many stand in the line, after those who wait were let in, if it is short enough."""
        depth, gate = self._line.qsize(), self._gate
        if gate.waiting and depth <= gate.low:
            gate.relieve()
            depth = self._line.qsize()
        return depth

    def _answer(self, ticket: Ticket[Any], turns: Turns) -> bool:
        """Apply the request of a ticket; whether the writer goes on."""
        if not ticket.begin():
            self._passed_over(ticket)
            return True
        account = self._account
        try:
            outcome = self._handler(ticket.request)
            if self.pass_on is not None:
                self.pass_on(outcome, ticket)
        except BaseException as error:  # noqa: BLE001 - reaches ticket and listener, and may end the writer
            return self._failed(ticket.request, error, ticket)
        # Who waits for it must find it counted. If more follow they are in hand then.
        account.progress = (self._taken, turns, 0)
        if self.pass_on is None:
            ticket.end(outcome)
        if length_hint(turns):
            account.progress = (self._taken, turns, 1)
        return True

    def _passed_over(self, ticket: Ticket[Any]) -> None:
        """A ticket was cancelled by its owner, or has expired."""
        if ticket.is_expired:
            self._account.expired += 1
            self.tell(ticket.request, ticket.exception() or RuntimeError("expired"))
        else:
            self._account.cancelled += 1

    def _failed(self, request: Any, error: BaseException, ticket: Ticket[Any] | None = None) -> bool:
        """A request failed; whether the writer goes on."""
        self._account.failed += 1
        self.tell(request, error)
        if isinstance(error, FATAL):
            self.failure = error
        if ticket is not None:
            ticket.end(None, error)
        return self.failure is None

    def _abandon(self, error: BaseException) -> None:
        """The writer itself is at fault: what it has taken out of the line, and not ended, failed."""
        for item in self._out:
            if type(item) is not Entry:
                self._failed(item, error)
            elif not item.ticket.done():
                self._failed(item.ticket.request, error, item.ticket)

    def tell(self, request: Any, error: BaseException) -> None:
        """The listener learns that a request was not applied."""
        try:
            self._listener(request, error)
        except BaseException as error_of_listener:  # the writer must outlive its listener
            if is_interrupt(error_of_listener):
                raise
            log.exception("the listener %r of a queue failed; the queue goes on", self._listener)

    def sweep(self, why: str) -> int:
        """Cancel all that stands in the line, on any thread, once the gate is shut; gives their number.

        Ctrl-C may come at any moment. Then what is not cancelled is still in ``_swept``, where the next sweep finds it: that
        of the writer at its end, if no other. At worst one request is told twice.
        """
        try:
            self._swept.extend(starmap(self._line.get_nowait, repeat(())))  # in C, where no interrupt comes between
        except Empty:
            pass
        if not self._gate.is_over:
            self._account.put_stop(STOP)  # it may have been taken out with the rest
        count = 0
        for item in _popped(self._swept):
            try:
                if item is STOP:
                    self._account.forget_stop()
                    continue
                self._cancel(item, RequestCancelled(why))
            except BaseException:
                self._swept.append(item)
                raise
            self._account.count_swept(1)
            count += 1
        return count

    def _cancel(self, item: Any, error: RequestCancelled) -> None:
        if type(item) is not Entry:
            self.tell(item, error)
            return
        ticket = item.ticket
        if not ticket.done():  # else its owner knows
            self.tell(ticket.request, error)
            if not ticket.cancel():  # it came from the queue before this one in a chain, so it is too late for that
                ticket.end(None, error)
        if ticket.cancelled():
            ticket.begin()  # tells concurrent.futures.wait()


def _popped(line: deque[Any]) -> Iterator[Any]:
    """What stands in ``line``, taken out one by one; several threads may do so at once."""
    return map(deque.popleft, takewhile(len, repeat(line)))
