"""Runs the user's code on items, on threads of its own or on an executor's, and decides what
becomes of them.

What became of several is written at once, and not waited for. No error of the user's code ends a
worker, nor does an executor that refuses work. *KEEP* mode: the worker stays with the item, waits
for its next attempt, and begins nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from leaderq import clock
from leaderq.engine.handlers import Handler
from leaderq.engine.serializers import value_of
from leaderq.errors import CorruptItem
from leaderq.observability import tracing
from leaderq.queues.consumers import ConsumerClosed, work_in_hand
from leaderq.queues.consuming import settling
from leaderq.queues.consuming.claims import Claim
from leaderq.queues.consuming.engine import Engine
from leaderq.queues.consuming.settling import ItemOutcome, ItemSettlement
from leaderq.threads import Service
from leaderq.timeouts import Deadline

log = logging.getLogger(__name__)

_SETTLE_S = 0.005
"""How long a settlement may wait to be written with others, in seconds."""
_YIELD_S = 0.001
"""For so long the next claim may go first; settlements are written while it is under way."""
_WAIT_S = 0.5
_REFUSED_S = 1.0


def values_of(engine: Engine, claim: Claim) -> list[Any] | None:
    """The values that were put. Unreadable ones are set aside: of several values only those that
    the serializer refuses. ``None``: the whole znode was set aside.
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
        engine.settle([settling.corrupt(claim, problem)])
        return None
    engine.settle([settling.corrupt_values(claim, bad, good, problem)])
    claim.items = good
    return values


def log_failure(queue: str, settlement: ItemSettlement, error: BaseException) -> None:
    claim, outcome = settlement.claim, settlement.outcome.value
    phrase = "item failed queue=%s item=%s attempt=%d outcome=%s"
    log.warning(phrase, queue, claim.name, claim.failures + 1, outcome, exc_info=error)


class ItemWorkers:
    """As many threads as ``concurrency`` says."""

    def __init__(self, name: str, engine: Engine) -> None:
        self._engine = engine
        batch, one = engine.options.consume_batch, engine.options.on_value
        what, code = ("consumer", one) if batch is None else ("consume_batch", batch)
        assert code is not None
        self._handler = Handler(what, code, f"leaderq-queue-{name}-loop")
        self._services = [
            Service(f"leaderq-queue-{name}-{number}", self._run)
            for number in range(engine.options.workers)
        ]

    def start(self) -> None:
        for one in self._services:
            one.start()

    def join(self, timeout_s: float) -> bool:
        deadline = Deadline(timeout_s)
        ended = all(one.is_current or one.stop(deadline.remaining_s) for one in self._services)
        if ended and not any(one.is_current for one in self._services):
            self._handler.close()
        return ended

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
            if engine.is_in_child:
                return
            if not claims or clock.now_s() > since_s + _SETTLE_S:
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
            self._engine.settle([settling.released(claim) for claim in claims])
            self._engine.is_closing.wait(_REFUSED_S)
            return []

    def _work(self, claims: list[Claim]) -> list[ItemSettlement]:
        """Batches are worked on together, others one by one."""
        settlements = []
        is_batch = self._engine.options.consume_batch is not None
        for group in [claims] if is_batch else [[claim] for claim in claims]:
            while group:
                ended = self._attempt(group)
                kept = [one for one in ended if one.outcome is ItemOutcome.KEPT]
                settlements += [one for one in ended if one.outcome is not ItemOutcome.KEPT]
                group = [one.claim for one in kept]
                if kept and not self._kept(kept):
                    settlements += [settling.released(claim) for claim in group]
                    break
        return settlements

    def _kept(self, kept: list[ItemSettlement]) -> bool:
        """Stay with these until they may be tried again; returns whether they are to be."""
        self._engine.settle(kept)
        rest_ms = max(one.rest_until_ms for one in kept) - clock.now_ms()
        return not self._engine.is_closing.wait(max(0, rest_ms) / 1000)

    def _attempt(self, claims: list[Claim]) -> list[ItemSettlement]:
        """Work on the values: one by one, together, or of one large znode batch by batch."""
        engine, options = self._engine, self._engine.options
        good: list[Claim] = []
        values: list[Any] = []
        for claim in claims:
            if (found := values_of(engine, claim)) is not None:
                good.append(claim)
                values += found
        work_in_hand.value.may_be_begun = lambda: all(map(engine.may_be_begun, good))
        step = 1 if options.consume_batch is None else options.batch_items
        while values:
            done = 0 if len(good) > 1 else len(good[0].items) - len(values)
            if not work_in_hand.value.may_be_begun():
                return [settling.interrupted(claim, claim.items[done:]) for claim in good]
            try:
                is_batch = options.consume_batch is not None
                given = values[:step] if is_batch else values[0]
                with tracing.of_items(engine.path, min(step, len(values)), is_batch=is_batch):
                    self._handler(given)
            except ConsumerClosed:  # a blocking consumer did not see it begun, or done
                return [settling.interrupted(claim, claim.items[done:]) for claim in good]
            except BaseException as exc:  # noqa: BLE001 - nothing may end this thread
                failed = [self._failed(claim, claim.items[done:], exc) for claim in good]
                if any(one.outcome is not ItemOutcome.DELETED for one in failed):
                    return failed
            del values[:step]
        # without a lock path it was deleted when it was claimed
        gone = [claim.count for claim in good if not claim.membership.is_locking]
        engine.figures.add("acknowledged", sum(gone))
        return [settling.done(claim) for claim in good if claim.membership.is_locking]

    def _failed(self, claim: Claim, left: Sequence[bytes], error: BaseException) -> ItemSettlement:
        options = self._engine.options
        settlement = settling.failed(claim, left, error, options.error_mode, options.retry)
        log_failure(self._engine.path, settlement, error)
        if settlement.outcome is ItemOutcome.KEPT:
            attempt, first_ms = claim.failures + 1, claim.enqueued_ms
            claim.note = replace(claim.note, attempt=attempt, enqueued_ms=first_ms)
            claim.items, claim.deaths = list(left), 0  # the note tells of these as well
        return settlement
