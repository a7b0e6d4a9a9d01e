"""The consuming side of a queue: pushed to a consumer, or taken on request."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import replace
from typing import Any, Generic, TypeVar

from leaderq.clock import now_s
from leaderq.errors import (
    ConnectionLost,
    CorruptItem,
    QueueClosed,
)
from leaderq.queues.consumers import ConsumeOptions, ErrorMode, QueueConsumer
from leaderq.queues.consuming import settling
from leaderq.queues.consuming.claims import Claim
from leaderq.queues.consuming.engine import START_S, Engine
from leaderq.queues.consuming.items import Item, TakenZnode
from leaderq.queues.consuming.settling import ItemSettlement
from leaderq.queues.consuming.workers import ItemWorkers, WorkerContext, log_failure, readable
from leaderq.queues.wire.names import QueueKind
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.zookeeper import Operation, Session

T = TypeVar("T")
log = logging.getLogger(__name__)

_SLICE_S = 0.5
_SHARED_S = 0.1
"""How soon one who waits sees the values of a znode that somebody else has taken."""


class Consumption(Generic[T]):
    """Consumes one queue; see :mod:`leaderq.queues.consuming.engine` for what happens when.

    *Guarantees* with a lock path: an item is deleted only after it was worked on, by whoever holds
    its lock, and only while that one's session lasts; it is given to another as soon as the session
    of its consumer is over. Without: an item is given to one consumer, at most once, and is lost if
    that one's process dies before it is done. *Order*: as the kind of queue says, among the items
    that one consumer with ``concurrency=1`` begins; several share the items out.
    """

    def __init__(
        self, session: Session, paths: QueuePaths, kind: QueueKind, options: ConsumeOptions[T], *, name: str | None = None
    ) -> None:
        self._session = session
        self._paths = paths
        self._options = options
        self._is_pushed = options.consumer is not None or options.consume_batch is not None
        name = name or paths.path.strip("/").replace("/", "-")
        self.engine = engine = Engine(session, paths, kind, name, options, options.workers if self._is_pushed else 0)
        context = WorkerContext(engine.ready, engine.settle, engine.is_ours, engine.is_closing, paths.path)
        self._work = ItemWorkers(name, options, context) if self._is_pushed else None
        if isinstance(options.consumer, QueueConsumer):
            engine.on_state = options.consumer.state_changed
        self._lock = threading.Lock()
        self._taken: deque[tuple[Item[T], Claim]] = deque()  # values of znodes that were taken, not handed out
        self._is_started = self._is_closed = False

    # -- its life -------------------------------------------------------------------------------------------------------

    def start(self, patience_s: float = START_S) -> None:
        """Begin to consume; does nothing if that was done. Waits ``patience_s`` for a connection.

        :raises QueueClosed: it was closed.
        :raises ZooKeeperError: the servers refuse, or are not there.
        """
        with self._lock:
            if self._is_closed:
                raise QueueClosed(f"queue {self._paths.path} was closed; make a new one")
            if self._is_started:
                return
            self.engine.start(patience_s)
            self._is_started = True
        if self._work is not None:
            self._work.start()

    def close(self, timeout_s: float = 5.0) -> bool:
        """Begin nothing new, finish what is begun, give back the rest; returns whether that was
        done in ``timeout_s``.

        What a consumer is still at then goes on, and is acknowledged when it is done. May be called
        again.
        """
        with self._lock:
            if self._is_closed or not self._is_started:
                self._is_closed = True
                return True
            self._is_closed = True
        while (item := self._next_taken()) is not None:
            item.give_back()
        return self.engine.close(timeout_s, self._work.join if self._work is not None else lambda _: True)

    # -- pausing --------------------------------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Whether nothing new is begun, by :meth:`pause` or by an operator."""
        return self.engine.pause_switch.is_paused

    def pause(self) -> None:
        """Begin nothing new until :meth:`resume`."""
        self.engine.pause_switch.set(True)

    def resume(self) -> None:
        """Undo :meth:`pause`; an operator's pause stands."""
        self.engine.pause_switch.set(False)

    def set_error_mode(self, mode: ErrorMode) -> None:
        """From the next failure on."""
        self._options = replace(self._options, error_mode=mode)
        self.engine.options = self._options
        if self._work is not None:
            self._work.options = self._options

    # -- taking ---------------------------------------------------------------------------------------------------------

    def take(self, timeout_s: float | None = None) -> Item[T] | None:
        """The next item, or ``None`` if there is none within ``timeout_s`` seconds (``None``: wait
        until there is one).

        :raises QueueClosed: not started, closed meanwhile, or it has a consumer.
        """
        if self._is_pushed:
            raise QueueClosed(f"queue {self._paths.path} has a consumer; items can be taken from one without")
        end = None if timeout_s is None else now_s() + timeout_s
        while True:
            if self._is_closed or not self._is_started:
                raise QueueClosed(f"queue {self._paths.path} is {'closed' if self._is_closed else 'not started'}")
            left_s = _SHARED_S if end is None else min(_SHARED_S, end - now_s())
            item = self._next_taken()
            if item is None:
                for claim in self.engine.ready.take(1, max(0.0, left_s)):
                    self._take_apart(claim)
                item = self._next_taken()
            if item is not None:
                return item
            if end is not None and now_s() >= end:
                return None

    def _next_taken(self) -> Item[T] | None:
        while True:
            try:
                item, claim = self._taken.popleft()
            except IndexError:
                return None
            if self.engine.is_ours(claim):
                return item

    def _take_apart(self, claim: Claim) -> None:
        """Make an item of each value."""
        if not self.engine.is_ours(claim):
            return
        try:
            values = readable(self._options, claim, self.engine.settle)
        except CorruptItem as exc:
            log.warning("item set aside, it cannot be read queue=%s item=%s error=%s", self._paths.path, claim.name, exc)
            self.engine.settle([settling.corrupt(claim, exc)])
            return
        if not values:
            self.engine.settle([settling.done(claim)])
            return
        taken = TakenZnode(claim, claim.payload.items if claim.payload else ())
        self._taken.extend((Item(value, at, taken, self), claim) for at, value in enumerate(values))

    # -- what an item asks ----------------------------------------------------------------------------------------------

    def settlement_of(self, taken: TakenZnode) -> ItemSettlement:
        """See :class:`~leaderq.queues.consuming.items.SettlesItems`."""
        claim, left = taken.claim, taken.remaining
        if not left:
            return settling.done(claim)
        if taken.error is not None:
            options = self._options
            settlement = settling.failed(claim, left, taken.error, options.error_mode, options.retry, stays=False)
            log_failure(self._paths.path, settlement, taken.error)
            return settlement
        if taken.delay_s is not None:
            return settling.requeued(claim, left, taken.delay_s)
        return settling.interrupted(claim, left)

    def settle(self, settlements: Sequence[ItemSettlement]) -> None:
        """See :class:`~leaderq.queues.consuming.items.SettlesItems`."""
        self.engine.settle(settlements)

    def write(self, claim: Claim, operations: Sequence[Operation]) -> list[Any] | None:
        """See :class:`~leaderq.queues.consuming.items.SettlesItems`."""
        answer = claim.membership.writer.submit(operations)
        while True:
            try:
                return answer.result(_SLICE_S)
            except FutureTimeout:
                if self._is_closed and answer.cancel():
                    raise ConnectionLost("the queue was closed before this was sent") from None
