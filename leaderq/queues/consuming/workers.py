"""Runs the user's code on items, on threads of its own or on an executor's, and decides what
becomes of them.

A worker hands what became of several to be written at once, without waiting for that. No error of
the user's code ends a worker, nor does an executor that refuses work. *KEEP* mode: the worker stays
with the item, waits for its next attempt, and begins nothing else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from leaderq.clock import now_ms, now_s
from leaderq.errors import CorruptItem
from leaderq.queues.consumers import ConsumerClosed
from leaderq.queues.consuming import settling
from leaderq.queues.consuming.claims import Claim
from leaderq.queues.consuming.engine import Engine
from leaderq.queues.consuming.settling import ItemOutcome, ItemSettlement

log = logging.getLogger(__name__)

_SETTLE_S = 0.005
"""How long what has become of an item may wait to be written with that of others, in seconds."""
_WAIT_S = 0.5
_REFUSED_S = 1.0


def values_of(engine: Engine, claim: Claim) -> list[Any] | None:
    """What was put. What cannot be read is set aside: of several values those that the serializer
    refuses, by themselves; ``None``: the whole znode.
    """
    problem = claim.error
    values: list[Any] = []
    good: list[bytes] = []
    bad: list[bytes] = []
    for item in claim.items:
        try:
            values.append(engine.options.serializer.deserialize(item))
            good.append(item)
        except Exception as exc:  # noqa: BLE001 - the user's serializer
            bad.append(item)
            problem = problem or CorruptItem(
                f"the serializer refuses it: {type(exc).__name__}: {exc}"
            )
    if problem is None:
        return values
    log.warning(
        "values set aside, they cannot be read queue=%s item=%s values=%d error=%s",
        engine.path,
        claim.name,
        len(bad) or 1,
        problem,
    )
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
        self.threads = [
            threading.Thread(target=self._run, name=f"leaderq-queue-{name}-{number}", daemon=True)
            for number in range(engine.options.workers)
        ]

    def start(self) -> None:
        for thread in self.threads:
            thread.start()

    def join(self, timeout_s: float) -> bool:
        deadline = now_s() + timeout_s
        others = [thread for thread in self.threads if thread is not threading.current_thread()]
        for thread in others:
            thread.join(max(0.0, deadline - now_s()))
        return not any(thread.is_alive() for thread in others)

    def _run(self) -> None:
        engine, options = self._engine, self._engine.options
        is_batch = options.consume_batch is not None
        most = options.batch_items if is_batch else 1
        settlements: list[ItemSettlement] = []
        settled_s = now_s()
        while True:
            claims = engine.ready.take(most, 0.0 if settlements else _WAIT_S, is_batch=is_batch)
            settlements += self._dispatch(claims) if claims else []
            if not claims or now_s() > settled_s + _SETTLE_S:
                engine.settle(settlements)
                settlements, settled_s = [], now_s()
                if not claims and engine.ready.is_closed:
                    return

    def _dispatch(self, claims: list[Claim]) -> list[ItemSettlement]:
        executor = self._engine.options.executor
        if executor is None:
            return self._work(claims)
        try:
            return executor.submit(self._work, claims).result()
        except BaseException:
            # refused, or shut down: neither may end this thread, nor lose the items
            log.exception("executor refused work, items given back queue=%s", self._engine.path)
            self._engine.settle([settling.given_back(claim) for claim in claims])
            self._engine.is_closing.wait(_REFUSED_S)
            return []

    def _work(self, claims: list[Claim]) -> list[ItemSettlement]:
        engine, options = self._engine, self._engine.options
        ours = [claim for claim in claims if engine.is_ours(claim)]
        settlements = []
        if len(ours) < len(claims):
            settlements = [settling.given_back(claim) for claim in claims if claim not in ours]
        batch = options.consume_batch
        if batch is not None and not (len(ours) == 1 and ours[0].count > options.batch_items):
            return settlements + self._work_together(ours, batch)
        for claim in ours:
            if (values := values_of(engine, claim)) is not None:
                settlements.append(self._work_on(claim, values))
        return settlements

    def _work_on(self, claim: Claim, values: list[Any]) -> ItemSettlement:
        while True:
            settlement = self._attempt(claim, values)
            if settlement.outcome is not ItemOutcome.KEPT:
                return settlement
            self._engine.settle([settlement])
            if not self._waited(settlement.rest_until_ms) or not self._engine.is_ours(claim):
                return settling.given_back(claim)

    def _attempt(self, claim: Claim, values: list[Any]) -> ItemSettlement:
        """Work on the values one by one, or on batches of one znode that holds more than a
        batch.
        """
        options = self._engine.options
        on_value = options.on_value
        items = list(claim.items)
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

    def _failed(self, claim: Claim, left: Sequence[bytes], error: BaseException) -> ItemSettlement:
        options = self._engine.options
        settlement = settling.failed(claim, left, error, options.error_mode, options.retry)
        log_failure(self._engine.path, settlement, error)
        if settlement.outcome is ItemOutcome.KEPT:
            claim.note = replace(
                claim.note, attempt=claim.failures + 1, enqueued_ms=claim.enqueued_ms
            )
            claim.items, claim.deaths = list(left), 0  # the note tells of these as well
        return settlement

    def _waited(self, until_ms: int) -> bool:
        return not self._engine.is_closing.wait(max(0, until_ms - now_ms()) / 1000)

    def _work_together(
        self, claims: list[Claim], consume: Callable[[Sequence[Any]], object]
    ) -> list[ItemSettlement]:
        settlements: list[ItemSettlement] = []
        while True:
            read = [(claim, values_of(self._engine, claim)) for claim in claims]
            good = [claim for claim, values in read if values is not None]
            if not good:
                return settlements
            try:
                consume([value for _, values in read for value in values or ()])
            except ConsumerClosed:
                return settlements + [settling.given_back(claim) for claim in good]
            except BaseException as exc:  # noqa: BLE001  (logged and judged; nothing may end this thread)
                failed = [self._failed(one, one.items, exc) for one in good]
            else:
                return settlements + [settling.done(claim) for claim in good]
            kept = [one for one in failed if one.outcome is ItemOutcome.KEPT]
            settlements += [one for one in failed if one.outcome is not ItemOutcome.KEPT]
            self._engine.settle(kept)
            claims = [one.claim for one in kept]
            if kept and not self._waited(max(one.rest_until_ms for one in kept)):
                return settlements + [settling.given_back(claim) for claim in claims]
