"""A writer whose handler takes all that stands in the line at once: one disk write, one round trip, for many requests.

The batch is as large as the line was long, up to a cap, and never waits to grow: alone a request goes at once, and the
more the writer falls behind the larger the batches are. All of a batch fail if the handler raises; one of it fails if
its outcome is an exception.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import repeat, starmap
from queue import Empty
from typing import Any

from leaderq.singular.account import NO_TURNS
from leaderq.singular.ticket import Entry, Ticket
from leaderq.singular.writer import STOP, Writer


class BatchWriter(Writer):
    """Applies requests by the batch, ``max_batch`` at most. The handler gives an outcome for each, or ``None``."""

    def __init__(self, *parts: Any, max_batch: int) -> None:
        super().__init__(*parts)
        self._max_batch = max_batch

    def _apply_chunk(self) -> bool:
        items, is_last = self._next_items()
        requests, tickets = self._begun(items)
        if not requests:
            return not is_last
        try:
            outcomes = _one_each(self._handler(requests.copy()), len(requests))  # the handler may use its list up
        except BaseException as error:  # noqa: BLE001 - reaches tickets and listener, and may end the writer
            outcomes = repeat(error, len(requests))
        self._end(requests, outcomes, tickets)
        return self.failure is None and not is_last

    def _next_items(self) -> tuple[list[Any], bool]:
        """Wait for requests; those that are there, and whether ``STOP`` was among them."""
        line, account = self._line, self._account
        account.rest(self._taken)
        was_idle = not line.qsize()
        self._out = ()
        self._out = items = [line.get()]
        try:
            items.extend(starmap(line.get_nowait, repeat((), min(line.qsize(), self._max_batch - 1))))
            self._relieved_depth()
        except Empty:  # who closed the queue was quicker; what was taken until then is in the list
            pass
        # Not "STOP in items", which would ask the requests whether they are equal to it.
        at = next((at for at, item in enumerate(items) if item is STOP), None) if Entry in set(map(type, items)) else None
        if at is not None:
            for late in items[at + 1 :]:  # the sweep after the end finds them
                line.put(late)
            del items[at:]
            account.forget_stop()
        self._taken += len(items)
        account.begin(self._taken, NO_TURNS, len(items), was_idle=was_idle)
        return items, at is not None

    def _begun(self, items: list[Any]) -> tuple[list[Any], dict[int, Ticket[Any]]]:
        """The requests to apply, and their tickets, by position, of those that have one."""
        if Entry not in set(map(type, items)):
            return items, {}
        requests: list[Any] = []
        tickets: dict[int, Ticket[Any]] = {}
        for item in items:
            if type(item) is not Entry:
                requests.append(item)
            elif item.ticket.begin():
                tickets[len(requests)] = item.ticket
                requests.append(item.ticket.request)
            else:
                self._passed_over(item.ticket)
        if len(requests) != len(items):  # what was passed over is not in the handler's hand
            self._account.progress = (self._taken, NO_TURNS, len(requests))
        return requests, tickets

    def _end(self, requests: list[Any], outcomes: Iterable[Any] | None, tickets: dict[int, Ticket[Any]]) -> None:
        """Each request has its outcome."""
        pass_on = self.pass_on
        if pass_on is None:
            self._account.rest(self._taken)  # who waits for one must find it counted
        if outcomes is None:
            if pass_on is None:
                for done in tickets.values():
                    done.end(None)
                return
            outcomes = repeat(None, len(requests))
        for at, (request, outcome) in enumerate(zip(requests, outcomes, strict=True)):
            ticket = tickets.get(at)
            if isinstance(outcome, BaseException):
                self._failed(request, outcome, ticket)
            elif pass_on is None:
                if ticket is not None:
                    ticket.end(outcome)
            else:
                try:
                    pass_on(outcome, ticket)
                except BaseException as error:  # noqa: BLE001 - reaches ticket and listener, and may end the writer
                    self._failed(request, error, ticket)


def _one_each(outcomes: Iterable[Any] | None, count: int) -> Iterable[Any] | None:
    if outcomes is None:
        return None
    given = list(outcomes)
    if len(given) != count:
        raise ValueError(
            f"the batch handler gave {len(given)} outcomes for {count} requests; give one for each, in their order, or None"
        )
    return given
