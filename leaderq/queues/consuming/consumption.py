"""The consuming side of a queue: pushed to a consumer, or taken on request."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from datetime import datetime, timezone
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from leaderq.clock import now_s
from leaderq.errors import (
    BadVersion,
    ClaimLost,
    ConnectionLost,
    CorruptItem,
    NoNode,
    QueueClosed,
    SessionExpired,
    ZooKeeperError,
)
from leaderq.queues.consumers import ConsumeOptions, QueueConsumer
from leaderq.queues.consuming import settling
from leaderq.queues.consuming.claims import Claim, ack_operations, now_ms, requeue_operations
from leaderq.queues.consuming.engine import Engine
from leaderq.queues.consuming.settling import ItemOutcome, Settlement
from leaderq.queues.consuming.workers import ItemWorkers, WorkerContext, values_of
from leaderq.queues.wire.names import QueueKind
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.zookeeper import Check, Operation, Session

if TYPE_CHECKING:
    from leaderq.term import Term


T = TypeVar("T")


class Settles(Protocol):
    """What an item needs of the queue it was taken from."""

    def ack(self, claim: Claim, operations: Sequence[Operation]) -> list[Any] | None: ...

    def fail(self, claim: Claim, error: BaseException) -> None: ...

    def requeue(self, claim: Claim, delay_s: float) -> None: ...


class Item(Generic[T]):
    """One item, until it is acknowledged or given back; a context manager that does the former at a
    clean end, the latter on an error.

    ``value``: what was put; of several put as one (``put_multi``) the first, and ``values`` are
    all. ``name``: of its znode. ``attempt``: 1 the first time. ``enqueued``: when it was first put,
    by the clock of the servers.

    *Guarantees* with a lock path: nobody else is given it while this session lasts; :meth:`ack`
    fails, and nothing is written, if it does not any more. *Not guaranteed* without: it was deleted
    when it was taken; if this process dies it is lost.
    """

    def __init__(self, claim: Claim, values: Sequence[T], queue: Settles) -> None:
        self._claim = claim
        self._queue = queue
        self.values = values

    @property
    def value(self) -> T:
        """What was put."""
        return self.values[0]

    @property
    def name(self) -> str:
        """The name of its znode."""
        return self._claim.name

    @property
    def attempt(self) -> int:
        """The how-manieth consumer this is, 1 being the first; former ones failed."""
        return self._claim.failures + 1

    @property
    def enqueued(self) -> datetime:
        """When it was first put."""
        return datetime.fromtimestamp(self._claim.enqueued_ms / 1000, timezone.utc)

    @property
    def is_settled(self) -> bool:
        """Whether it was acknowledged or given back."""
        return self._claim.is_settled

    def ack(self, ops: Iterable[Operation] = (), *, term: Term | None = None) -> list[Any] | None:
        """It is done: remove it, and carry out ``ops`` with that, all or none. Gives their results,
        ``None`` if the answer was lost.

        With ``term``, also only if that leadership still stands (through ``term.write``). May be
        called again if it raised.

        :raises ClaimLost: it is not ours any more; nothing was written.
        :raises ZooKeeperError: one of ``ops`` failed by itself (``index`` counts in them); nothing
            was written, the item is still ours.
        :raises Deposed: ``term`` is over.
        """
        self._refuse_twice()
        own = ack_operations(self._claim)
        extra = tuple(ops)
        guard = (
            (Check(self._claim.membership.member),)
            if term is not None or (extra and not self._claim.membership.is_locking)
            else ()
        )
        whole = (*guard, *own, *extra)
        try:
            results = self._queue.ack(self._claim, whole) if term is None else term.write(whole)
        except (SessionExpired, NoNode, BadVersion) as exc:
            if isinstance(exc, SessionExpired) or (exc.index is not None and exc.index < len(guard) + len(own)):
                raise ClaimLost(f"item {self.name} is not this consumer's any more: {exc}") from exc
            raise _counted(exc, len(guard) + len(own)) from exc
        except ZooKeeperError as exc:
            raise _counted(exc, len(guard) + len(own)) from exc
        self._claim.is_settled = True
        self._queue.ack(self._claim, ())
        return None if results is None else list(results[len(guard) + len(own) :])

    def requeue(self, delay_s: float = 0.0) -> None:
        """Give it back to the tail, with its id, priority or due time, for anybody to try
        ``delay_s`` seconds from now; counts as a failed attempt.
        """
        self._refuse_twice()
        self._queue.requeue(self._claim, delay_s)
        self._claim.is_settled = True

    def fail(self, error: BaseException) -> None:
        """Working on it failed: what becomes of it is the retry policy's to say."""
        self._refuse_twice()
        self._queue.fail(self._claim, error)
        self._claim.is_settled = True

    def __enter__(self) -> Item[T]:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None) -> None:
        if self.is_settled:
            return
        if error is None:
            self.ack()
        else:
            self.fail(error)

    def __repr__(self) -> str:
        return f"Item({self.name!r}, attempt {self.attempt}{', settled' if self.is_settled else ''})"

    def _refuse_twice(self) -> None:
        if self.is_settled:
            raise QueueClosed(f"item {self.name} was acknowledged or given back already")


def _counted(exc: ZooKeeperError, before: int) -> ZooKeeperError:
    if exc.index is not None:
        exc.index -= before
    return exc


Deserialize = Callable[[bytes], Any]


log = logging.getLogger(__name__)

_SLICE_S = 0.5


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
        slack = options.min_items_before_refresh
        self._engine = engine = Engine(
            session, paths, kind, name, options.concurrency if self._is_pushed else 0, slack, options.claim_ahead
        )
        strict = kind in (QueueKind.PRIORITY, QueueKind.DELAY)
        context = WorkerContext(engine.ready, engine.settle, engine.is_ours, engine.is_closing, strict)
        self._work = ItemWorkers(name, options, context) if self._is_pushed else None
        if isinstance(options.consumer, QueueConsumer):
            engine.on_state = options.consumer.state_changed
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
                raise QueueClosed(f"queue {self._paths.path} was closed; make a new one")
            if self._is_started:
                return
            self._engine.start()
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
        return self._engine.close(timeout_s, self._work.join if self._work is not None else lambda _: True)

    # -- pausing --------------------------------------------------------------------------------------------------------

    @property
    def is_paused(self) -> bool:
        """Whether nothing new is begun, by :meth:`pause` or by an operator."""
        return self._engine.pause_switch.is_paused

    def pause(self) -> None:
        """Begin nothing new until :meth:`resume`."""
        self._engine.pause_switch.set(True)

    def resume(self) -> None:
        """Undo :meth:`pause`; an operator's pause stands."""
        self._engine.pause_switch.set(False)

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
            values = values_of(self._options, claim)
        except CorruptItem as exc:
            log.warning("item %s cannot be read and is set aside among the dead letters: %s", claim.name, exc)
            self._engine.settle([settling.corrupt(claim, exc)])
            return None
        if not values:
            self._engine.settle([settling.done(claim)])
            return None
        return Item(claim, values, self)

    # -- what an item asks ----------------------------------------------------------------------------------------------

    def ack(self, claim: Claim, operations: Sequence[Operation]) -> list[Any] | None:
        """Write these as one; with none, only note that the claim is settled."""
        if not operations:
            self._engine.settle([Settlement(claim, (), ItemOutcome.ACKNOWLEDGED)])
            return []
        return self._written(claim, operations)

    def fail(self, claim: Claim, error: BaseException) -> None:
        """Have the policy decide, and write that."""
        items = claim.payload.items if claim.payload else ()
        settlement = settling.failed(claim, items, error, self._options.error_mode, self._options.retry)
        log.warning(
            "working on item %s failed (attempt %d): %s",
            claim.name,
            claim.failures + 1,
            settlement.outcome.value,
            exc_info=error,
        )
        if settlement.outcome is ItemOutcome.KEPT:  # nobody stays with it: free it, with its note
            settlement = Settlement(
                claim, (*settlement.operations, *settling.given_back(claim).operations), ItemOutcome.GIVEN_BACK
            )
        self._engine.settle([settlement])

    def requeue(self, claim: Claim, delay_s: float) -> None:
        """Put it back to the tail, and wait until that is done."""
        items = claim.payload.items if claim.payload else ()
        operations = requeue_operations(claim, items, failures=claim.failures + 1, wait_s=delay_s)
        self._written(claim, operations)
        self._engine.settle([Settlement(claim, (), ItemOutcome.REQUEUED, now_ms() + int(delay_s * 1000))])

    def _written(self, claim: Claim, operations: Sequence[Operation]) -> list[Any] | None:
        answer = claim.membership.writer.submit(operations)
        while True:
            try:
                return answer.result(_SLICE_S)
            except FutureTimeout:
                if self._is_closed and answer.cancel():
                    raise ConnectionLost("the queue was closed before this was sent") from None
