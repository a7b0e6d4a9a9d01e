"""Runs the user's code on items, on threads of its own or on an executor's, and decides what becomes of them.

A worker takes a short run of items (one, if they take long), works on them in order, and hands what became of them to be written,
without waiting for that. No error of the user's code ends a worker, nor does an executor that refuses work.

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
from leaderq.errors import CorruptItem, QueueClosed
from leaderq.queues.consumer import ConsumePlan
from leaderq.queues.consuming import judging
from leaderq.queues.consuming.claim import Claim
from leaderq.queues.consuming.operations import now_ms
from leaderq.queues.consuming.ready import Ready
from leaderq.queues.consuming.settling import Part
from leaderq.queues.wire.payload import Payload

log = logging.getLogger(__name__)
T = TypeVar("T")

RUN_S = 0.005
"""A run of items should take no longer than this, in seconds."""
MAX_RUN = 64
_WAIT_S = 0.5
_REFUSED_S = 1.0


@dataclass
class Desk:
    """What workers need of the engine. ``settle`` never blocks; ``is_ours`` says whether a claim may still be worked on."""

    ready: Ready
    settle: Callable[[Sequence[Part]], None]
    is_ours: Callable[[Claim], bool]
    is_closing: threading.Event
    strict_order: bool


def values_of(plan: ConsumePlan[T], claim: Claim) -> list[T]:
    """What was put.

    :raises CorruptItem: the serializer cannot read it, or the znode's frame could not be.
    """
    payload = claim.payload
    if payload is None:
        raise claim.error or CorruptItem("it cannot be read")
    try:
        return [plan.serializer.deserialize(item) for item in payload.items]
    except Exception as exc:
        raise CorruptItem(f"the serializer refuses it: {type(exc).__name__}: {exc}") from exc


class Workers(Generic[T]):
    """As many as the plan's ``concurrency``."""

    def __init__(self, name: str, plan: ConsumePlan[T], desk: Desk) -> None:
        self._plan = plan
        self._desk = desk
        self._average_s = RUN_S
        self.threads = [
            threading.Thread(target=self._run, name=f"leaderq-queue-{name}-{number}", daemon=True)
            for number in range(plan.concurrency)
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
        ready, is_batch = self._desk.ready, self._plan.consume_batch is not None
        while True:
            if is_batch:
                run = deque(ready.take(self._plan.batch_items, _WAIT_S, is_fit=_is_first_try))
            else:
                run = ready.take_run(1 if self._desk.strict_order else self._run_length(), _WAIT_S)
            if run:
                self._dispatch(run)
            elif ready.is_closed:
                return

    def _run_length(self) -> int:
        return max(1, min(MAX_RUN, int(RUN_S / max(self._average_s, 1e-6)), len(self._desk.ready) // len(self.threads)))

    def _dispatch(self, run: deque[Claim]) -> None:
        executor: Executor | None = self._plan.executor
        if executor is None:
            self._work(run)
            return
        try:
            executor.submit(self._work, run).result()
        except BaseException:  # refused, or shut down: neither may end this thread, nor lose the items
            log.exception("the executor refused work; the items are given back")
            self._desk.settle([judging.given_back(claim) for claim in _popped(run)])
            self._desk.is_closing.wait(_REFUSED_S)

    def _work(self, run: deque[Claim]) -> None:
        began, count = now_s(), len(run)
        if self._plan.consume_batch is not None:
            claims = list(_popped(run))
            parts = [judging.given_back(claim) for claim in claims if not self._desk.is_ours(claim)]
            self._settle(
                parts + self._work_together([one for one in claims if self._desk.is_ours(one)], self._plan.consume_batch)
            )
            return
        parts = []
        for claim in _popped(run):
            parts.append(self._work_on(claim) if self._desk.is_ours(claim) else judging.given_back(claim))
            if now_s() - began > RUN_S:
                self._settle(parts)
                parts = []
        self._settle(parts)
        self._average_s += 0.2 * ((now_s() - began) / count - self._average_s)

    def _settle(self, parts: list[Part]) -> None:
        for part in parts:
            part.claim.is_settled = True
        self._desk.settle(parts)

    # -- one by one -----------------------------------------------------------------------------------------------------

    def _work_on(self, claim: Claim) -> Part:
        try:
            values = values_of(self._plan, claim)
        except CorruptItem as exc:
            log.warning("item %s cannot be read and is set aside among the dead letters: %s", claim.name, exc)
            return judging.corrupt(claim, exc)
        while True:
            part = self._attempt(claim, values)
            if part.what != "kept":
                return part
            self._desk.settle([part])
            if not self._waited(part.rest_until_ms) or not self._desk.is_ours(claim):
                return judging.given_back(claim)

    def _attempt(self, claim: Claim, values: list[T]) -> Part:
        on_value: Callable[[T], Any] | None = self._plan.on_value
        items = list(claim.payload.items) if claim.payload else []
        while values:
            try:
                if on_value is not None:
                    on_value(values[0])
            except QueueClosed:  # a blocking consumer was closed before anybody had taken this
                return judging.interrupted(claim, items)
            except BaseException as exc:  # noqa: BLE001  (logged and judged; nothing may end this thread)
                part = self._failed(claim, items, exc)
                if part.what != "deleted":
                    return part
            del values[0], items[0]
        return judging.done(claim)

    def _failed(self, claim: Claim, left: list[bytes], error: BaseException) -> Part:
        part = judging.failed(claim, left, error, self._plan.error_mode, self._plan.retry)
        log.warning(
            "the consumer failed on item %s (attempt %d): %s", claim.name, claim.failures + 1, part.what, exc_info=error
        )
        if part.what == "kept":
            note = replace(claim.note, attempt=claim.failures + 1, enqueued_ms=claim.enqueued_ms)
            claim.is_now(Payload(list(left), note))
        return part

    def _waited(self, until_ms: int) -> bool:
        """Wait for the next attempt; whether it may be made."""
        return not self._desk.is_closing.wait(max(0, until_ms - now_ms()) / 1000)

    # -- together -------------------------------------------------------------------------------------------------------

    def _work_together(self, claims: list[Claim], consume: Callable[[Sequence[T]], object]) -> list[Part]:
        parts: list[Part] = []
        values: list[T] = []
        good: list[Claim] = []
        for claim in claims:
            try:
                values += values_of(self._plan, claim)
                good.append(claim)
            except CorruptItem as exc:
                log.warning("item %s cannot be read and is set aside among the dead letters: %s", claim.name, exc)
                parts.append(judging.corrupt(claim, exc))
        while good:
            try:
                consume(values)
            except QueueClosed:
                return parts + [judging.given_back(claim) for claim in good]
            except BaseException as exc:  # noqa: BLE001  (logged and judged; nothing may end this thread)
                failed = [self._failed(claim, list(claim.payload.items) if claim.payload else [], exc) for claim in good]
                kept = [part for part in failed if part.what == "kept"]
                if not kept:
                    return parts + failed
                self._desk.settle(kept)
                parts += [part for part in failed if part.what != "kept"]
                good = [part.claim for part in kept]
                values = [value for claim in good for value in values_of(self._plan, claim)]
                if not self._waited(max(part.rest_until_ms for part in kept)):
                    return parts + [judging.given_back(claim) for claim in good]
                continue
            return parts + [judging.done(claim) for claim in good]
        return parts


def _popped(run: deque[Claim]) -> Iterator[Claim]:
    """What is left of a run, one at a time: the engine may take back what has not come yet."""
    while True:
        try:
            yield run.popleft()
        except IndexError:
            return


def _is_first_try(claim: Claim) -> bool:
    """What has failed before is given alone: it may be the one that fails the others."""
    return claim.failures == 0
