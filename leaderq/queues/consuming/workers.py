"""Runs the user's code on items, on threads of its own or on an executor's, and decides what
becomes of them.

A worker takes a short run of items (one, if they take long), works on them in order, and hands what
became of them to be written, without waiting for that. No error of the user's code ends a worker,
nor does an executor that refuses work.

*KEEP* mode: the worker stays with the item, waits for its next attempt, and begins nothing else.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from leaderq.clock import now_s
from leaderq.errors import CorruptItem
from leaderq.queues.consumers import ConsumeOptions, ConsumerClosed
from leaderq.queues.consuming import settling
from leaderq.queues.consuming.claims import Claim, now_ms
from leaderq.queues.consuming.prefetch import Prefetch
from leaderq.queues.consuming.settling import ItemOutcome, ItemSettlement
from leaderq.queues.wire.payload import Payload

log = logging.getLogger(__name__)
T = TypeVar("T")

RUN_S = 0.005
"""A run of items should take no longer than this, in seconds."""
MAX_RUN = 64
_WAIT_S = 0.5
_REFUSED_S = 1.0


@dataclass
class WorkerContext:
    """What workers need of the engine. ``settle`` never blocks; ``is_ours`` says whether a claim
    may still be worked on.
    """

    ready: Prefetch
    settle: Callable[[Sequence[ItemSettlement]], None]
    is_ours: Callable[[Claim], bool]
    is_closing: threading.Event
    strict_order: bool
    queue: str


def readable(options: ConsumeOptions[T], claim: Claim, settle: Callable[[Sequence[ItemSettlement]], object]) -> list[T]:
    """What was put. Of several values those that the serializer refuses are set aside, by themselves.

    :raises CorruptItem: the znode's frame cannot be read, or the serializer refuses all values.
    """
    payload = claim.payload
    if payload is None:
        raise claim.error or CorruptItem("it cannot be read")
    values: list[T] = []
    good: list[bytes] = []
    bad: list[bytes] = []
    problem: CorruptItem | None = None
    for item in payload.items:
        try:
            values.append(options.serializer.deserialize(item))
            good.append(item)
        except Exception as exc:  # noqa: BLE001 - the user's serializer
            bad.append(item)
            problem = problem or CorruptItem(f"the serializer refuses it: {type(exc).__name__}: {exc}")
    if problem is not None:
        if not good:
            raise problem
        log.warning("values set aside, they cannot be read item=%s values=%d error=%s", claim.name, len(bad), problem)
        settle([settling.corrupt_values(claim, bad, good, problem)])
        claim.is_now(Payload(good, payload.note))
    return values


def log_failure(queue: str, settlement: ItemSettlement, error: BaseException) -> None:
    """Say that the user's code raised, and what becomes of the item."""
    claim, outcome = settlement.claim, settlement.outcome.value
    phrase = "item failed queue=%s item=%s attempt=%d outcome=%s"
    log.warning(phrase, queue, claim.name, claim.failures + 1, outcome, exc_info=error)


class ItemWorkers(Generic[T]):
    """As many as the plan's ``concurrency``."""

    def __init__(self, name: str, options: ConsumeOptions[T], context: WorkerContext) -> None:
        self.options = options
        self._context = context
        self._queue = context.queue
        self.threads = [
            threading.Thread(target=self._run, name=f"leaderq-queue-{name}-{number}", daemon=True)
            for number in range(options.workers)
        ]

    def start(self) -> None:
        """Begin to wait for items."""
        for thread in self.threads:
            thread.start()

    def join(self, timeout_s: float) -> bool:
        """Wait until all have ended; whether they did."""
        deadline = now_s() + timeout_s
        for thread in self.threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - now_s()))
        return not any(thread.is_alive() for thread in self.threads if thread is not threading.current_thread())

    def _run(self) -> None:
        ready, is_batch = self._context.ready, self.options.consume_batch is not None
        while True:
            if is_batch:
                run = deque(ready.take(self.options.batch_items, _WAIT_S, is_batch=True))
            else:
                run = ready.take_run(1 if self._context.strict_order else self._run_length(), _WAIT_S)
            if run:
                self._dispatch(run)
            elif ready.is_closed:
                return

    def _run_length(self) -> int:
        ready = self._context.ready
        return max(1, min(MAX_RUN, int(RUN_S / max(ready.average_s or RUN_S, 1e-6)), len(ready) // len(self.threads)))

    def _dispatch(self, run: deque[Claim]) -> None:
        executor: Executor | None = self.options.executor
        if executor is None:
            self._work(run)
            return
        try:
            executor.submit(self._work, run).result()
        except BaseException:  # refused, or shut down: neither may end this thread, nor lose the items
            log.exception("executor refused work, items given back queue=%s", self._queue)
            self._context.settle([settling.given_back(claim) for claim in _popped(run)])
            self._context.is_closing.wait(_REFUSED_S)

    def _work(self, run: deque[Claim]) -> None:
        began = now_s()
        if self.options.consume_batch is not None:
            claims = list(_popped(run))
            if len(claims) == 1 and claims[0].count > self.options.batch_items:
                self._settle([self._work_on(claims[0])])
                return
            settlements = [settling.given_back(claim) for claim in claims if not self._context.is_ours(claim)]
            self._settle(
                settlements
                + self._work_together([one for one in claims if self._context.is_ours(one)], self.options.consume_batch)
            )
            return
        settlements = []
        for claim in _popped(run):
            settlements.append(self._work_on(claim) if self._context.is_ours(claim) else settling.given_back(claim))
            if now_s() - began > RUN_S:
                self._settle(settlements)
                settlements = []
        self._settle(settlements)

    def _settle(self, settlements: list[ItemSettlement]) -> None:
        for settlement in settlements:
            settlement.claim.is_settled = True
        self._context.settle(settlements)

    # -- one by one -----------------------------------------------------------------------------------------------------

    def _work_on(self, claim: Claim) -> ItemSettlement:
        try:
            values = readable(self.options, claim, self._context.settle)
        except CorruptItem as exc:
            log.warning("item set aside, it cannot be read queue=%s item=%s error=%s", self._queue, claim.name, exc)
            return settling.corrupt(claim, exc)
        while True:
            settlement = self._attempt(claim, values)
            if settlement.outcome is not ItemOutcome.KEPT:
                return settlement
            self._context.settle([settlement])
            if not self._waited(settlement.rest_until_ms) or not self._context.is_ours(claim):
                return settling.given_back(claim)

    def _attempt(self, claim: Claim, values: list[T]) -> ItemSettlement:
        """Work on the values one by one, or on batches of one znode that holds more than a batch."""
        options = self.options
        on_value: Callable[[T], Any] | None = options.on_value
        items = list(claim.payload.items) if claim.payload else []
        step = 1 if options.consume_batch is None else options.batch_items
        while values:
            try:
                if options.consume_batch is not None:
                    options.consume_batch(values[:step])
                elif on_value is not None:
                    on_value(values[0])
            except ConsumerClosed:  # a blocking consumer was closed before anybody had taken this
                return settling.interrupted(claim, items)
            except BaseException as exc:  # noqa: BLE001  (logged and judged; nothing may end this thread)
                settlement = self._failed(claim, items, exc)
                if settlement.outcome is not ItemOutcome.DELETED:
                    return settlement
            del values[:step], items[:step]
        return settling.done(claim)

    def _failed(self, claim: Claim, left: list[bytes], error: BaseException) -> ItemSettlement:
        settlement = settling.failed(claim, left, error, self.options.error_mode, self.options.retry)
        log_failure(self._queue, settlement, error)
        if settlement.outcome is ItemOutcome.KEPT:
            note = replace(claim.note, attempt=claim.failures + 1, enqueued_ms=claim.enqueued_ms)
            claim.is_now(Payload(list(left), note))
        return settlement

    def _waited(self, until_ms: int) -> bool:
        """Wait for the next attempt; whether it may be made."""
        return not self._context.is_closing.wait(max(0, until_ms - now_ms()) / 1000)

    # -- together -------------------------------------------------------------------------------------------------------

    def _work_together(self, claims: list[Claim], consume: Callable[[Sequence[T]], object]) -> list[ItemSettlement]:
        settlements: list[ItemSettlement] = []
        values: list[T] = []
        good: list[Claim] = []
        for claim in claims:
            try:
                values += readable(self.options, claim, self._context.settle)
                good.append(claim)
            except CorruptItem as exc:
                log.warning("item set aside, it cannot be read queue=%s item=%s error=%s", self._queue, claim.name, exc)
                settlements.append(settling.corrupt(claim, exc))
        while good:
            try:
                consume(values)
            except ConsumerClosed:
                return settlements + [settling.given_back(claim) for claim in good]
            except BaseException as exc:  # noqa: BLE001  (logged and judged; nothing may end this thread)
                failed = [self._failed(claim, list(claim.payload.items) if claim.payload else [], exc) for claim in good]
                kept = [settlement for settlement in failed if settlement.outcome is ItemOutcome.KEPT]
                if not kept:
                    return settlements + failed
                self._context.settle(kept)
                settlements += [settlement for settlement in failed if settlement.outcome is not ItemOutcome.KEPT]
                good = [settlement.claim for settlement in kept]
                values = [value for claim in good for value in readable(self.options, claim, self._context.settle)]
                if not self._waited(max(settlement.rest_until_ms for settlement in kept)):
                    return settlements + [settling.given_back(claim) for claim in good]
                continue
            return settlements + [settling.done(claim) for claim in good]
        return settlements


def _popped(run: deque[Claim]) -> Iterator[Claim]:
    """What is left of a run, one at a time: the engine may take back what has not come yet."""
    while True:
        try:
            yield run.popleft()
        except IndexError:
            return
