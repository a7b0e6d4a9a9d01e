"""Handlers of Dyno messages on threads, with heartbeats; a stop releases what was not begun."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from leaderq.base import clock
from leaderq.base.arguments import (
    Seconds,
    at_least,
    in_seconds,
    instance,
    plain_function,
    require,
    unless,
)
from leaderq.dyno.delivery import Delivery, OnLease, StaleLease
from leaderq.dyno.queue import DynoQueue
from leaderq.engine.handlers import HandlerThreads, handler_problem
from leaderq.errors import CorruptItem, FromOutside, QueueClosed, told
from leaderq.observability import tracing
from leaderq.threads import Backoff, Retry, Service, primitives
from leaderq.threads.stacks import stack_of

log = logging.getLogger(__name__)
MOST_S = 900.0
"""How long a handler may work, unless its worker says otherwise."""
_QUIET = 3
_WAIT_S = 1.0
_BACKOFF = Retry(first_s=0.1, most_s=5.0)


def _watched(root: str) -> OnLease:
    """Return a function that logs where this thread stands, from the third extension on."""
    thread, since_s, times = primitives.get_ident(), clock.now_s(), itertools.count(1)

    def extended(delivery: Delivery) -> None:
        if next(times) >= _QUIET:
            said = "handler still at work queue=%s message=%s for_s=%.0f at=%s"
            log.warning(said, root, delivery.id, clock.now_s() - since_s, stack_of(thread))

    return extended


class Postpone(Exception):
    """A handler raises this to have the message delivered again in ``delay_s`` seconds. No failure
    is counted.

    :raises ConfigurationError: ``delay_s`` is not a time; the message counts as failed then.
    """

    def __init__(self, delay_s: Seconds) -> None:
        self.delay_s = in_seconds("delay_s", delay_s)
        super().__init__(f"postponed by {self.delay_s} s")


class Kill(Exception):
    """A handler raises this to make the message a dead letter with this reason."""


class Worker(HandlerThreads):
    """Calls ``handler(delivery)`` on ``threads`` threads, for one message after another.

    If the handler returns, the message is acknowledged. If it raises anything, it has failed, and
    the message is delivered again as ``retry`` says for the class of the error (``None``: never) or
    for the nearest of its bases, else as the queue's own policy says. It may also raise
    :class:`Postpone` or :class:`Kill`. Leases are extended while the handler works, for at most
    ``most_s`` seconds (15 minutes; ``None``: for ever); ``ending`` and ``ending_s`` are those of
    :meth:`DynoQueue.keep`. From the third extension on, each extension is logged with the place
    where the handler stands.

    A coroutine function runs on an event loop of the worker, ``threads`` of them at a time.
    ``batch_items``: the handler gets a list of up to so many messages that are available; an error
    that it raises applies to all messages that it has not settled. ``values``: the handler gets the
    values, read by the ``serializer`` of the queue, instead of the deliveries; a message that
    cannot be read becomes a dead letter (``corrupt``).

    *Guarantees:* after :meth:`stop` no handler is begun, and messages not begun are released at
    once. The threads outlast every error but the end of the queue or of its session. *Not
    guaranteed:* that a handler which hangs is ended: its message passes to another when ``most_s``
    is over.

    :raises ConfigurationError: the handler cannot be called, or a number is not allowed.
    """

    def __init__(
        self,
        queue: DynoQueue,
        handler: Callable[[Any], object],
        *,
        threads: int = 1,
        batch_items: int | None = None,
        values: bool = False,
        most_s: Seconds | None = MOST_S,
        ending: OnLease | None = None,
        ending_s: Seconds = 5.0,
        retry: Mapping[type[BaseException], Retry | None] | None = None,
    ) -> None:
        what = "the handler of a Worker"
        require(
            instance("queue", queue, DynoQueue),
            instance("retry", retry, Mapping | None),
            at_least("threads", threads, 1),
            at_least("batch_items", batch_items, 1, or_none="for one at a time"),
            handler_problem(what, handler),
            plain_function("ending", ending, or_none=True),
        )
        self._queue = queue
        super().__init__(what, handler, "leaderq-dyno-worker", threads, self._run)
        self._most, self._is_batch = batch_items or 1, batch_items is not None
        self._of_values = values
        self._retry = dict(retry or {})
        for kind, policy in dict[Any, object](self._retry).items():
            is_class = isinstance(kind, type) and issubclass(kind, BaseException)
            require(
                unless(is_class, f"retry by {kind!r}: give classes of exceptions"),
                instance("retry", policy, Retry | None),
            )
        most_s = None if most_s is None else in_seconds("most_s", most_s)
        self._keep = partial(
            queue.keep, most_s=most_s, ending=ending, ending_s=in_seconds("ending_s", ending_s)
        )

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, service: Service) -> None:
        backoff = Backoff(_BACKOFF)
        while not service.is_stopping:
            try:
                deliveries = self._queue.pop(self._most, _WAIT_S)
                if deliveries:
                    self._work(service, deliveries)
                backoff.reset()
            except QueueClosed:
                return
            except FromOutside:
                raise
            except BaseException as exc:  # noqa: BLE001 - this thread goes on
                if self._queue.is_over:
                    return
                said = "pop or settlement failed, trying again queue=%s error=%s"
                log.warning(said, self._queue.root, told(exc))
                service.pause(backoff.next_s())

    def _work(self, service: Service, deliveries: list[Delivery]) -> None:
        if service.is_stopping:
            for one in deliveries:
                self._settle(one, Delivery.release)
            return
        try:
            self._keep(deliveries[:1], extended=_watched(self._queue.root))
            self._keep(deliveries[1:])
            values = dict[Delivery, Any]()
            for one in deliveries:
                self._read(one, values)
            if values:
                given = list(values.values())
                self._handle(list(values), given if self._is_batch else given[0])
        finally:
            self._queue.let_go(deliveries)

    def _read(self, one: Delivery, values: dict[Delivery, Any]) -> None:
        try:
            values[one] = one.value if self._of_values else one
        except CorruptItem as exc:
            said = "message cannot be read queue=%s message=%s error=%s"
            log.warning(said, self._queue.root, one.id, exc)
            self._settle(one, partial(Delivery.kill, reason="corrupt"))
        except Exception as exc:  # noqa: BLE001 - its body is missing, or the store is away
            self._settle(one, partial(self._fail, error=exc))

    def _handle(self, deliveries: list[Delivery], given: Any) -> None:
        end: Callable[[Delivery], object]
        try:
            with tracing.of_messages(deliveries, self._queue.root):
                self._handler(given)
        except Postpone as exc:
            end = partial(Delivery.postpone, delay_s=exc.delay_s)
        except Kill as exc:
            end = partial(Delivery.kill, reason=told(exc).partition(": ")[2] or "killed")
        except BaseException as exc:
            said = "handler failed queue=%s message=%s deliveries=%d"
            for one in deliveries:
                log.exception(said, self._queue.root, one.id, one.deliveries)
            end = partial(self._fail, error=exc)
        else:
            done = [one for one in deliveries if not one.is_settled]
            for one, error in zip(done, self._queue.ack(done), strict=True):
                if error is not None:
                    self._not_settled(one, error)
            return
        for one in deliveries:
            if not one.is_settled:
                self._settle(one, end)

    def _settle(self, one: Delivery, how: Callable[[Delivery], object]) -> None:
        try:
            how(one)
        except Exception as exc:  # noqa: BLE001 - the others are settled all the same
            self._not_settled(one, exc)

    def _not_settled(self, one: Delivery, error: Exception) -> None:
        said = "message not settled, it is delivered again queue=%s message=%s error=%s"
        if isinstance(error, StaleLease):
            said = "message not settled, its lease was lost queue=%s message=%s error=%s"
        log.warning(said, self._queue.root, one.id, told(error))

    def _fail(self, one: Delivery, error: BaseException) -> None:
        for kind in type(error).__mro__:
            if kind in self._retry:
                if (policy := self._retry[kind]) is None:
                    one.kill(told(error))
                else:
                    one.nack(error, retry=policy)
                return
        one.nack(error)
