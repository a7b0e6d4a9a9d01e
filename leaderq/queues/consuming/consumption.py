"""The consuming side of a queue: items are passed to a consumer, or taken on request.

A znode may hold several values (``put_multi``); each that is taken is an :class:`Item` of its own.
The znode is settled together with the last of its values. Values that are not done then, because
the work on them failed or nobody took them, are written back in one znode. Values that nobody took
count as settled when the queue is paused or closed, or when nobody has asked for a value for a
second. States of a value: *open*, *done*, *left*.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any, Generic, TypeVar

from leaderq.base import clock
from leaderq.base.arguments import in_seconds, instance, require
from leaderq.base.timeouts import Deadline
from leaderq.engine.handlers import HandlerThreads
from leaderq.engine.reading_ahead import result_of
from leaderq.engine.serializers import value_of
from leaderq.engine.taken import Taken
from leaderq.errors import (
    BadVersion,
    ClaimLost,
    CorruptItem,
    NoNode,
    QueueClosed,
    SessionExpired,
    ZooKeeperError,
)
from leaderq.observability import tracing
from leaderq.queues.consumers import (
    BlockingQueueConsumer,
    ConsumerClosed,
    QueueOptions,
    work_in_hand,
)
from leaderq.queues.consuming import items
from leaderq.queues.consuming.engine import Engine
from leaderq.queues.consuming.items import Claim, ItemOutcome, ItemSettlement, rewritten
from leaderq.queues.wire.names import QueueKind
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.term import Term
from leaderq.threads import Service, primitives
from leaderq.zookeeper import Check, Operation, Session
from leaderq.zookeeper.writing.groups import given_operations

log = logging.getLogger(__name__)

_SETTLE_S = 0.005
"""How long a settlement may wait to be written with others, in seconds."""
_YIELD_S = 0.001
"""For so long the next claim may go first; settlements are written while it is under way."""
_WAIT_S = 0.5
_REFUSED_S = 1.0


def values_of(engine: Engine, claim: Claim) -> list[Any] | None:
    """Return the values that were put in this znode; ``None`` if the whole znode was set aside. Of
    several values, only those that the serializer refuses are set aside.
    """
    problem = claim.error
    values: list[Any] = []
    good: list[bytes] = []
    bad: list[bytes] = []
    for item in claim.items:
        try:
            values.append(value_of(engine.options.serializer, item))
            good.append(item)
        except CorruptItem as exc:
            bad.append(item)
            problem = problem or exc
    if problem is None:
        return values
    phrase = "values set aside, they cannot be read queue=%s item=%s values=%d error=%s"
    log.warning(phrase, engine.path, claim.name, len(bad) or 1, problem)
    if not good:
        engine.settle([items.corrupt(claim, problem)])
        return None
    engine.settle([items.corrupt_values(claim, bad, good, problem)])
    claim.items = good
    return values


def log_failure(queue: str, settlement: ItemSettlement, error: BaseException) -> None:
    claim, outcome = settlement.claim, settlement.outcome.value
    phrase = "item failed queue=%s item=%s attempt=%d outcome=%s"
    log.warning(phrase, queue, claim.name, claim.failures + 1, outcome, exc_info=error)


class ItemWorkers(HandlerThreads):
    """The threads that pass claimed items to the user's consumer."""

    def __init__(self, name: str, engine: Engine) -> None:
        options = engine.options
        batch, one = options.consume_batch, options.on_value
        what, code = ("consumer", one) if batch is None else ("consume_batch", batch)
        assert code is not None
        super().__init__(what, code, f"leaderq-queue-{name}", options.workers, self._run)
        self._engine = engine

    def _run(self, _service: Service) -> None:
        engine, options = self._engine, self._engine.options
        is_batch = options.consume_batch is not None
        most = options.batch_items if is_batch else 1
        settlements: list[ItemSettlement] = []
        since_s = 0.0
        while True:
            patience_s = _YIELD_S if settlements else _WAIT_S
            claims = engine.ready.take(most, patience_s, is_batch=is_batch)
            if not settlements:
                since_s = clock.now_s()
            settlements += self._dispatch(claims) if claims else []
            if not claims or clock.now_s() > since_s + _SETTLE_S:
                if engine.is_in_child:
                    return
                engine.settle(settlements)
                settlements = []
                if not claims and engine.ready.is_closed:
                    return

    def _dispatch(self, claims: list[Claim]) -> list[ItemSettlement]:
        executor = self._engine.options.executor
        if executor is None:
            return self._work(claims)
        try:
            return executor.submit(self._work, claims).result()
        except BaseException:
            # refused, or shut down: this thread must go on, and the items must not be lost
            log.exception("executor refused work, items released queue=%s", self._engine.path)
            self._engine.settle([items.released(claim) for claim in claims])
            self._engine.is_closing.wait(_REFUSED_S)
            return []

    def _work(self, claims: list[Claim]) -> list[ItemSettlement]:
        """Work on these until all are settled; waits with those that it keeps."""
        settlements: list[ItemSettlement] = []
        while True:
            ended = self._attempt(claims)
            if not (kept := [one for one in ended if one.outcome is ItemOutcome.KEPT]):
                return settlements + ended
            settlements += [one for one in ended if one.outcome is not ItemOutcome.KEPT]
            claims = [one.claim for one in kept]
            self._engine.settle(kept)
            rest_ms = max(one.rest_until_ms for one in kept) - clock.now_ms()
            if self._engine.is_closing.wait(max(0, rest_ms) / 1000):
                return settlements + [items.released(claim) for claim in claims]

    def _attempt(self, claims: list[Claim]) -> list[ItemSettlement]:
        """Pass the values of these items to the consumer once; returns the settlements. The values
        of a single item are passed one by one or, for ``consume_batch``, batch by batch; those of
        several items are passed together.
        """
        engine, options = self._engine, self._engine.options
        good: list[Claim] = []
        values: list[Any] = []
        for claim in claims:
            if (found := values_of(engine, claim)) is not None:
                good.append(claim)
                values += found
        work_in_hand.value.may_be_begun = may_be_begun = partial(engine.may_be_begun, good)
        is_batch = options.consume_batch is not None
        step = options.batch_items if is_batch else 1
        while values:
            done = 0 if len(good) > 1 else len(good[0].items) - len(values)
            if not may_be_begun():
                return [items.interrupted(claim, claim.items[done:]) for claim in good]
            try:
                given = values[:step] if is_batch else values[0]
                count = min(step, len(values))
                with tracing.of_items(good, engine.path, count, is_batch=is_batch):
                    self._handler(given)
            except ConsumerClosed:  # a blocking consumer did not see it begun, or done
                engine.settle([items.interrupted(claim, claim.items[done:]) for claim in good])
                blocking = options.consumer
                if isinstance(blocking, BlockingQueueConsumer) and blocking.is_closed:
                    # If it was another queue's too, this one would claim the item again and again.
                    engine.is_closing.wait(_REFUSED_S)
                return []
            except BaseException as exc:  # noqa: BLE001 - nothing may end this thread
                failed = [self._failed(claim, claim.items[done:], exc) for claim in good]
                if any(one.outcome is not ItemOutcome.DELETED for one in failed):
                    return failed
            del values[:step]
        if engine.is_locking:
            return [items.done(claim) for claim in good]
        engine.figures.add("acknowledged", sum(claim.count for claim in good))
        return []  # they were deleted when they were claimed

    def _failed(self, claim: Claim, left: Sequence[bytes], error: BaseException) -> ItemSettlement:
        settlement = items.failed(claim, left, error, self._engine.options)
        log_failure(self._engine.path, settlement, error)
        if settlement.outcome is ItemOutcome.KEPT:
            attempt, first_ms = claim.failures + 1, claim.enqueued_ms
            claim.note = replace(claim.note, attempt=attempt, enqueued_ms=first_ms)
            claim.items, claim.deaths = list(left), 0  # the note tells of these as well
        return settlement


T = TypeVar("T")

_SHARED_S = 0.1
"""How soon a waiting taker sees the values of a znode that another one has taken."""
_IDLE_S = 1.0
"""After so long without a taker, values of a znode go back if none of its values is in hand."""


@dataclass(eq=False)
class TakenZnode:
    """One znode whose values were taken on request. ``lock`` is held while a value is settled.
    ``error``: what the work on a value raised. ``delay_s``: set if a value is to be requeued.
    """

    claim: Claim
    open: dict[int, bytes]
    left: dict[int, bytes] = field(default_factory=dict)
    error: BaseException | None = None
    delay_s: float | None = None
    lock: primitives.RLock = field(default_factory=lambda: primitives.RLock())

    @property
    def remaining(self) -> list[bytes]:
        """The values that are not done, in the order in which they were put."""
        together = {**self.open, **self.left}
        return [together[at] for at in sorted(together)]


class Item(Taken, Generic[T]):
    """One value that was taken from a queue, until it is acknowledged or released. As a context
    manager, it is acknowledged at a clean end of the block, counts as failed if the block raises,
    and is released after an interrupt or in a cancelled task.

    ``value``: what was put. ``name``: that of its znode, which the values of one ``put_multi``
    share. ``attempt``: 1 at the first attempt. ``enqueued``: when the item was first put, by the
    servers' clock.

    *Guarantees* with a lock path: nobody else gets the item while this session lasts; once the
    session is over, :meth:`ack` fails for each value, and writes nothing. A znode is removed when
    all its values are done. *Not guaranteed* without a lock path: the item was deleted when it was
    taken, and is lost if this process dies. With a lock path: a value that was acknowledged without
    ``ops`` comes again if the process dies before the last value of its znode is acknowledged.
    """

    def __init__(self, value: T, at: int, taken: TakenZnode, queue: Consumption[Any]) -> None:
        self.value, self._at, self._taken, self._queue = value, at, taken, queue
        self._claim = taken.claim

    @property
    def name(self) -> str:
        return self._claim.name

    @property
    def attempt(self) -> int:
        return self._claim.failures + 1

    @property
    def enqueued(self) -> datetime:
        return datetime.fromtimestamp(self._claim.enqueued_ms / 1000, timezone.utc)

    @property
    def is_settled(self) -> bool:
        return self._at not in self._taken.open

    def ack(self, ops: Iterable[Operation] = (), *, term: Term | None = None) -> list[Any] | None:
        """Acknowledge the item: remove it and carry out ``ops``, in one multi, all or nothing; with
        ``term``, only if that leadership still stands (through ``term.write``). Returns the results
        of ``ops``; ``None`` if the answer was lost. If ``ack`` raised, it may be called again.

        :raises ClaimLost: the item is not ours any more; nothing was written.
        :raises ZooKeeperError: one of ``ops`` failed (``index`` counts in them); nothing was
            written, the item is still ours.
        :raises Deposed: ``term`` is over.
        :raises ConfigurationError: ``ops`` are not operations; nothing was written.
        """
        also = given_operations("ops", ops)
        require(instance("term", term, Term | None))
        with self._taken.lock:
            self._refuse_twice()
            raw = self._taken.open.pop(self._at)
            try:
                return self._acknowledged(also, term)
            except BaseException:
                self._taken.open[self._at] = raw
                raise

    def requeue(self, delay_s: float = 0.0) -> None:
        """Put the item back at the tail, with its id, priority or due time. Any consumer may try it
        ``delay_s`` seconds from now; this counts as a failed attempt. Values of one znode go back
        together, when the last of its values is settled.

        :raises ClaimLost: the item is not ours any more; nothing was written.
        :raises ConfigurationError: ``delay_s`` is not a time, or below 0.
        """
        delay_s = in_seconds("delay_s", delay_s)
        with self._taken.lock:
            self._refuse_twice()
            former = self._taken.delay_s
            self._taken.delay_s = max(delay_s, former or 0.0)
            try:
                self._leave(is_awaited=True)
            except BaseException:
                self._taken.delay_s = former
                raise

    def fail(self, error: BaseException) -> None:
        """Report that the work on the item failed: the retry policy decides what becomes of it.

        :raises ConfigurationError: ``error`` is not an exception.
        """
        require(instance("error", error, BaseException))
        with self._taken.lock:
            self._refuse_twice()
            self._taken.error = error
            self._leave(is_awaited=False)

    def give_back(self) -> None:
        """Release the item: it was not begun, and no attempt is counted."""
        with self._taken.lock:
            if not self.is_settled:
                self._leave(is_awaited=False)

    _failed, _given_back = fail, give_back

    def __repr__(self) -> str:
        state = ", settled" if self.is_settled else ""
        return f"Item({self.name!r}, attempt {self.attempt}{state})"

    def _acknowledged(self, ops: tuple[Operation, ...], term: Term | None) -> list[Any] | None:
        taken, claim = self._taken, self._claim
        settlement = None if taken.open else self._queue.settlement_of(taken)
        is_bare = settlement is None and not ops and term is None
        if is_bare and self._queue.engine.may_be_begun([claim]):
            return []
        own = () if settlement is None else settlement.operations
        if settlement is None and not is_bare:
            own = rewritten(claim, taken.remaining)
        if is_bare or term is not None or (ops and not claim.membership.is_locking):
            own = (Check(claim.membership.member), *own)  # bare: the servers know if it is over
        results = self._written(own, ops, term)
        if settlement is not None:
            self._note(settlement)
        return None if results is None else results[len(own) :]

    def _written(
        self, own: Sequence[Operation], ops: Sequence[Operation] = (), term: Term | None = None
    ) -> list[Any] | None:
        """Write these in one multi. The ``index`` of an error counts in ``ops``."""
        whole = (*own, *ops)
        try:
            if term is not None:
                return list(term.write(whole))
            if not whole:
                return []
            answer = self._claim.membership.writer.submit(whole)
            return result_of(answer, self._queue.engine.is_closing.is_set)
        except SessionExpired as exc:
            raise self._lost(exc) from exc
        except ZooKeeperError as exc:
            # With its session over, the item is not ours, whatever has become of the write.
            if not self._queue.engine.is_ours(self._claim):
                self._forget()
            if exc.index is not None:
                if isinstance(exc, NoNode | BadVersion) and exc.index < len(own):
                    raise self._lost(exc) from exc
                exc.index -= len(own)
            raise

    def _leave(self, *, is_awaited: bool) -> None:
        taken = self._taken
        taken.left[self._at] = taken.open.pop(self._at)
        if taken.open:
            return
        try:
            settlement = self._queue.settlement_of(taken)
            if is_awaited:
                self._written(settlement.operations)
                self._note(settlement)
            else:
                self._queue.engine.settle([settlement])
        except BaseException:
            taken.open[self._at] = taken.left.pop(self._at)
            raise

    def _lost(self, error: BaseException) -> ClaimLost:
        self._forget()
        return ClaimLost(f"item {self.name} is not this consumer's any more: {error}")

    def _forget(self) -> None:
        """Tell the engine, once, that the item is another's; it holds back its name until then."""
        claim, engine = self._claim, self._queue.engine
        if claim.membership.is_locking and not claim.is_lost:
            gone = items.released(claim)
            if not engine.is_ours(claim):
                gone = ItemSettlement(claim, (), gone.outcome)
            claim.is_lost = True
            engine.settle([gone])

    def _note(self, settlement: ItemSettlement) -> None:
        self._queue.engine.settle([ItemSettlement(self._claim, (), settlement.outcome)])

    def _refuse_twice(self) -> None:
        if self.is_settled:
            raise QueueClosed(f"item {self.name} was acknowledged or released already")


class Consumption(Generic[T]):
    """Consumes one queue by an engine and, if there is a consumer, by workers."""

    def __init__(
        self, session: Session, paths: QueuePaths, kind: QueueKind, options: QueueOptions[T]
    ) -> None:
        self.is_pushed = options.consumer is not None or options.consume_batch is not None
        name = options.name or paths.path.strip("/").replace("/", "-")
        workers = options.workers if self.is_pushed else 0
        self.engine = engine = Engine(session, paths, kind, name, options, workers)
        self._work = ItemWorkers(name, engine) if self.is_pushed else None
        engine.give_back_idle = self._give_back_idle
        self._lock = primitives.Lock()
        # values of znodes that were taken, not handed out
        self._taken: deque[Item[T]] = deque()
        self._asked_s = clock.now_s()
        self.is_started = False

    def start(self) -> None:
        """Begin to consume, unless this was started before; after an error, call it again."""
        with self._lock:
            if self.engine.is_closing.is_set():
                raise QueueClosed(f"queue {self.engine.path} was closed; make a new one")
            if self.is_started:
                return
            self.engine.start()
            self.is_started = True
        if self._work is not None:
            self._work.start()

    def close(self, timeout_s: float = 5.0) -> bool:
        """Begin nothing new, finish what is begun, and release the rest; returns whether all that
        was done within ``timeout_s`` seconds. If not, consumers at work continue, and their items
        are acknowledged when they are done.
        """
        with self._lock:
            was_open = self.is_started and not self.engine.is_closing.is_set()
            self.engine.is_closing.set()
        if isinstance(consumer := self.engine.options.consumer, BlockingQueueConsumer):
            consumer.close()
        if not was_open:
            return True
        self._give_back_taken()
        work = self._work

        def join_workers(within_s: float | None) -> bool:  # a worker may be the caller
            return work is None or (work.stop(within_s) and not work.is_running)

        return self.engine.close(timeout_s, join_workers)

    def take(self, deadline: Deadline, check: Callable[[], object]) -> Item[T] | None:
        """See :meth:`QueueRecipe.take <leaderq.queues.QueueRecipe.take>`. ``check()`` raises an
        error unless the queue is open.
        """
        if self.is_pushed:
            raise QueueClosed(
                f"queue {self.engine.path} has a consumer; items can be taken from one without"
            )
        while True:
            check()
            self._asked_s = clock.now_s()
            if (item := self._next_taken()) is None:
                for claim in self.engine.ready.take(1, deadline.left_s(_SHARED_S)):
                    self._take_apart(claim)
                item = self._next_taken()
            if item is not None or deadline.is_over:
                return item

    def _next_taken(self) -> Item[T] | None:
        if self._taken:
            with suppress(IndexError):  # another taker was quicker
                item = self._taken.popleft()
                is_paused = self.engine.pause_switch.is_paused
                if not is_paused and self.engine.may_be_begun([item._claim]):
                    return item
                item.give_back()
                self._give_back_taken()
        return None

    def _give_back_taken(self) -> None:
        with suppress(IndexError):
            while True:
                self._taken.popleft().give_back()

    def _give_back_idle(self) -> bool:
        """Release the values that were not handed out if the queue is paused, or if nobody has
        asked for a value for a while and nobody works on one of their znodes. Returns whether any
        value is left. Runs on the engine's thread.
        """
        if not self._taken:
            return False
        left = Counter(item._taken for item in self._taken.copy())
        is_in_hand = any(len(znode.open) != count for znode, count in left.items())
        is_idle = clock.now_s() > self._asked_s + _IDLE_S and not is_in_hand
        if is_idle or self.engine.pause_switch.is_paused:
            self._give_back_taken()
        return bool(self._taken)

    def _take_apart(self, claim: Claim) -> None:
        try:
            values = values_of(self.engine, claim)
        except BaseException:
            self.engine.settle([items.released(claim)])
            raise
        if values is None:
            return
        if not values:
            self.engine.settle([items.done(claim)])
        taken = TakenZnode(claim, dict(enumerate(claim.items)))
        self._taken.extend(Item(value, at, taken, self) for at, value in enumerate(values))
        if len(values) > 1:
            self.engine.notify()

    def settlement_of(self, taken: TakenZnode) -> ItemSettlement:
        """Of a znode whose values are all settled."""
        claim, left = taken.claim, taken.remaining
        if not left:
            return items.done(claim)
        if taken.error is not None:
            settlement = items.failed(claim, left, taken.error, self.engine.options, stays=False)
            log_failure(self.engine.path, settlement, taken.error)
            return settlement
        if taken.delay_s is not None:
            return items.requeued(claim, left, taken.delay_s)
        return items.interrupted(claim, left)
