"""The consuming side of a queue: pushed to a consumer, or taken on request."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, Generic, TypeVar

from leaderq.clock import now_s
from leaderq.errors import ConnectionLost, CorruptItem, QueueClosed
from leaderq.queues.consumer import ConsumePlan, QueueConsumer
from leaderq.queues.consuming import judging
from leaderq.queues.consuming.claim import Claim
from leaderq.queues.consuming.engine import Engine
from leaderq.queues.consuming.item import Item
from leaderq.queues.consuming.operations import now_ms, requeued
from leaderq.queues.consuming.settling import Part
from leaderq.queues.consuming.working import Desk, Workers, values_of
from leaderq.queues.places import Places
from leaderq.queues.wire.kinds import Kind
from leaderq.zookeeper import Operation, Session

log = logging.getLogger(__name__)
T = TypeVar("T")

_SLICE_S = 0.5


class Consuming(Generic[T]):
    """Consumes one queue; see :mod:`leaderq.queues.consuming.engine` for what happens when.

    *Guarantees* with a lock path: an item is deleted only after it was worked on, by whoever holds its lock, and only while that one's
    session lasts; it is given to another as soon as the session of its consumer is over. Without: an item is given to one consumer, at
    most once, and is lost if that one's process dies before it is done.
    *Order*: as the kind of queue says, among the items that one consumer with ``concurrency=1`` begins; several share the items out.
    """

    def __init__(
        self, session: Session, places: Places, kind: Kind, plan: ConsumePlan[T], *, name: str | None = None
    ) -> None:
        self._session = session
        self._places = places
        self._plan = plan
        self._is_pushed = plan.consumer is not None or plan.consume_batch is not None
        name = name or places.path.strip("/").replace("/", "-")
        slack = plan.min_items_before_refresh
        self._engine = engine = Engine(session, places, kind, name, plan.concurrency if self._is_pushed else 0, slack)
        strict = kind in (Kind.PRIORITY, Kind.DELAY)
        desk = Desk(engine.ready, engine.settle, engine.is_ours, engine.is_closing, strict)
        self._work = Workers(name, plan, desk) if self._is_pushed else None
        if isinstance(plan.consumer, QueueConsumer):
            engine.on_state = plan.consumer.state_changed
        self._lock = threading.Lock()
        self._is_started = self._is_closed = False

    # -- its life -------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to consume; does nothing if that was done.

        :raises QueueClosed: it was closed.
        :raises ZooKeeperError: the servers refuse, or are not there.
        """
        with self._lock:
            if self._is_closed:
                raise QueueClosed(f"queue {self._places.path} was closed; make a new one")
            if self._is_started:
                return
            self._engine.start()
            self._is_started = True
        if self._work is not None:
            self._work.start()

    def close(self, timeout_s: float = 5.0) -> bool:
        """Begin nothing new, finish what is begun, give back the rest; gives whether that was done in ``timeout_s``.

        What a consumer is still at then goes on, and is acknowledged when it is done. May be called again.
        """
        with self._lock:
            if self._is_closed or not self._is_started:
                self._is_closed = True
                return True
            self._is_closed = True
        return self._engine.close(timeout_s, self._work.join if self._work is not None else lambda _: True)

    # -- pausing --------------------------------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Whether nothing new is begun, by :meth:`pause` or by an operator."""
        return self._engine.pausing.is_paused

    def pause(self) -> None:
        """Begin nothing new until :meth:`resume`."""
        self._engine.pausing.set(True)

    def resume(self) -> None:
        """Undo :meth:`pause`; an operator's pause stands."""
        self._engine.pausing.set(False)

    # -- taking ---------------------------------------------------------------------------------------------------------

    def take(self, timeout_s: float | None = None) -> Item[T] | None:
        """The next item, or ``None`` if there is none within ``timeout_s`` seconds (``None``: wait until there is one).

        :raises QueueClosed: not started, closed meanwhile, or it has a consumer.
        """
        if self._is_pushed:
            raise QueueClosed(f"queue {self._places.path} has a consumer; items can be taken from one without")
        end = None if timeout_s is None else now_s() + timeout_s
        while True:
            if self._is_closed or not self._is_started:
                raise QueueClosed(f"queue {self._places.path} is {'closed' if self._is_closed else 'not started'}")
            left_s = _SLICE_S if end is None else min(_SLICE_S, end - now_s())
            for claim in self._engine.ready.take(1, max(0.0, left_s)):
                item = self._item(claim)
                if item is not None:
                    return item
            if end is not None and now_s() >= end:
                return None

    def _item(self, claim: Claim) -> Item[T] | None:
        if not self._engine.is_ours(claim):
            return None
        try:
            values = values_of(self._plan, claim)
        except CorruptItem as exc:
            log.warning("item %s cannot be read and is set aside among the dead letters: %s", claim.name, exc)
            self._engine.settle([judging.corrupt(claim, exc)])
            return None
        if not values:
            self._engine.settle([judging.done(claim)])
            return None
        return Item(claim, values, self)

    # -- what an item asks ----------------------------------------------------------------------------------------------

    def ack(self, claim: Claim, operations: Sequence[Operation]) -> list[Any] | None:
        """Write these as one; with none, only note that the claim is settled."""
        if not operations:
            self._engine.settle([Part(claim, (), "acknowledged")])
            return []
        return self._written(claim, operations)

    def fail(self, claim: Claim, error: BaseException) -> None:
        """Have the policy decide, and write that."""
        items = claim.payload.items if claim.payload else ()
        part = judging.failed(claim, items, error, self._plan.error_mode, self._plan.retry)
        log.warning("working on item %s failed (attempt %d): %s", claim.name, claim.failures + 1, part.what, exc_info=error)
        if part.what == "kept":  # nobody stays with it: free it, with its note
            part = Part(claim, (*part.operations, *judging.given_back(claim).operations), "given back")
        self._engine.settle([part])

    def requeue(self, claim: Claim, delay_s: float) -> None:
        """Put it back to the tail, and wait until that is done."""
        items = claim.payload.items if claim.payload else ()
        operations = requeued(claim, items, failures=claim.failures + 1, wait_s=delay_s)
        self._written(claim, operations)
        self._engine.settle([Part(claim, (), "requeued", now_ms() + int(delay_s * 1000))])

    def _written(self, claim: Claim, operations: Sequence[Operation]) -> list[Any] | None:
        answer = claim.hold.tally.submit(operations)
        while True:
            try:
                return answer.result(_SLICE_S)
            except FutureTimeout:
                if self._is_closed and answer.cancel():
                    raise ConnectionLost("the queue was closed before this was sent") from None
