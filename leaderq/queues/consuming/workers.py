"""Runs the user's code on items, on threads of its own or on an executor's, and decides what
becomes of them.

A worker takes one item after the other, or a batch, and hands what became of several to be written
at once, without waiting for that. No error of the user's code ends a worker,
nor does an executor that refuses work.

*KEEP* mode: the worker stays with the item, waits for its next attempt, and begins nothing else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
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

_SETTLE_S = 0.005
"""How long what has become of an item may wait to be written with that of others, in seconds."""
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
        most = self.options.batch_items if is_batch else 1
        settlements: list[ItemSettlement] = []
        settled_s = now_s()
        while True:
            claims = ready.take(most, 0.0 if settlements else _WAIT_S, is_batch=is_batch)
            settlements += self._dispatch(claims) if claims else []
            if not claims or now_s() > settled_s + _SETTLE_S:
                self._context.settle(settlements)
                settlements, settled_s = [], now_s()
                if not claims and ready.is_closed:
                    return

    def _dispatch(self, claims: list[Claim]) -> list[ItemSettlement]:
        executor: Executor | None = self.options.executor
        if executor is None:
            return self._work(claims)
        try:
            return executor.submit(self._work, claims).result()
        except BaseException:  # refused, or shut down: neither may end this thread, nor lose the items
            log.exception("executor refused work, items given back queue=%s", self._queue)
            self._context.settle([settling.given_back(claim) for claim in claims])
            self._context.is_closing.wait(_REFUSED_S)
            return []

    def _work(self, claims: list[Claim]) -> list[ItemSettlement]:
        ours = [claim for claim in claims if self._context.is_ours(claim)]
        lost = [settling.given_back(claim) for claim in claims if claim not in ours] if len(ours) < len(claims) else []
        batch = self.options.consume_batch
        if batch is None or (len(ours) == 1 and ours[0].count > self.options.batch_items):
            return [self._work_on(claim) for claim in ours] + lost
        return self._work_together(ours, batch) + lost

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
