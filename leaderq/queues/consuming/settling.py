"""Writes what has become of items, many in one multi, without waiting.

Parts go together as long as all is well. If ZooKeeper refuses one (somebody deleted the item behind
our back), its owner is told and the others are sent again. Runs on whatever thread calls, and on
the session's; blocks neither.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from leaderq.errors import ConnectionLost, CorruptItem, LeaderqError, SessionExpired, TooLarge, ZooKeeperError
from leaderq.queues.consumers import ErrorMode, RetryDecision, RetryPolicy
from leaderq.queues.consuming.claims import (
    Claim,
    ack_operations,
    dead_letter_operations,
    keep_operations,
    now_ms,
    release_operations,
    requeue_operations,
)
from leaderq.queues.wire.payload import Payload
from leaderq.queues.writing.groups import MULTI_BYTES, MULTI_OPS, estimated_bytes
from leaderq.zookeeper import Create, Operation

log = logging.getLogger(__name__)

OnSettled = Callable[["ItemSettlement", LeaderqError | None, Sequence[Any] | None], None]


class ItemOutcome(Enum):
    """What becomes of an item that was claimed; the value is the word in the log."""

    ACKNOWLEDGED = "acknowledged"
    DELETED = "deleted"
    SET_ASIDE = "set aside"
    REQUEUED = "requeued"
    KEPT = "kept"
    """It stays where it is, claimed; only its note is written."""
    GIVEN_BACK = "given back"


class ConsumerDied(LeaderqError):
    """Why an item is among the dead letters that no consumer could say anything about."""


@dataclass(slots=True, eq=False)
class ItemSettlement:
    """What is to be written of one item. ``rest_until_ms``: if it is created again, not to be
    touched until then.
    """

    claim: Claim
    operations: tuple[Operation, ...]
    outcome: ItemOutcome
    rest_until_ms: int = 0

    def created(self, results: Sequence[Any] | None) -> str | None:
        """The name under which the item was created again, if the answer tells."""
        if results is None:
            return None
        for op, result in zip(self.operations, results, strict=True):
            if isinstance(op, Create) and not op.ephemeral and isinstance(result, str):
                return result.rpartition("/")[2]
        return None


def settle(settlements: Sequence[ItemSettlement], on_settled: OnSettled) -> None:
    """Write these through the writers of their memberships; ``on_settled(settlement, error,
    results)`` is called once for each.
    """
    waiting: dict[int, list[ItemSettlement]] = {}
    for settlement in settlements:
        if settlement.operations:
            waiting.setdefault(id(settlement.claim.membership), []).append(settlement)
        else:
            on_settled(settlement, None, [])
    for of_one in waiting.values():
        for together in _fitting(of_one):
            _send(together, on_settled)


def _fitting(settlements: list[ItemSettlement]) -> Iterator[list[ItemSettlement]]:
    """As many at a time as fit in one multi of the usual size."""
    together: list[ItemSettlement] = []
    count = size = 0
    for settlement in settlements:
        ops, data = len(settlement.operations), estimated_bytes(settlement.operations, 0)
        if together and (count + ops > MULTI_OPS or size + data > MULTI_BYTES):
            yield together
            together, count, size = [], 0, 0
        together.append(settlement)
        count += ops
        size += data
    if together:
        yield together


def _send(settlements: list[ItemSettlement], on_settled: OnSettled) -> None:
    writer = settlements[0].claim.membership.writer
    answer = writer.submit([op for settlement in settlements for op in settlement.operations])
    answer.add_done_callback(partial(_answered, settlements, on_settled))


def _answered(settlements: list[ItemSettlement], on_settled: OnSettled, answer: Future[list[Any] | None]) -> None:
    error = ConnectionLost("given up") if answer.cancelled() else answer.exception()
    if error is None:
        results, at = answer.result(), 0
        for settlement in settlements:
            count = len(settlement.operations)
            _tell(on_settled, settlement, None, None if results is None else results[at : at + count])
            at += count
        return
    known = error if isinstance(error, LeaderqError) else ConnectionLost(f"{type(error).__name__}: {error}")
    if isinstance(known, TooLarge) and len(settlements) > 1:
        for settlement in settlements:
            _send([settlement], on_settled)
        return
    blamed = _blamed(settlements, known)
    for settlement in settlements if blamed is None else (blamed,):
        _tell(on_settled, settlement, known, None)
    if blamed is not None and (rest := [settlement for settlement in settlements if settlement is not blamed]):
        _send(rest, on_settled)


def _blamed(settlements: list[ItemSettlement], error: LeaderqError) -> ItemSettlement | None:
    """The one that failed by itself; ``None`` if all did."""
    if isinstance(error, ConnectionLost | SessionExpired) or not isinstance(error, ZooKeeperError) or error.index is None:
        return None
    at = 0
    for settlement in settlements:
        if error.index < at + len(settlement.operations):
            error.index -= at
            return settlement
        at += len(settlement.operations)
    return None


def _tell(
    on_settled: OnSettled, settlement: ItemSettlement, error: LeaderqError | None, results: Sequence[Any] | None
) -> None:
    try:
        on_settled(settlement, error, results)
    except Exception:
        log.exception("what became of %s could not be noted; the queue goes on", settlement.claim.name)


def done(claim: Claim) -> ItemSettlement:
    """It was worked on."""
    return ItemSettlement(claim, ack_operations(claim), ItemOutcome.ACKNOWLEDGED)


def given_back(claim: Claim, *, in_place: bool = False) -> ItemSettlement:
    """It was not begun. ``in_place``: without a lock path, under its old name, which may be taken."""
    return ItemSettlement(claim, release_operations(claim, in_place=in_place), ItemOutcome.GIVEN_BACK)


def interrupted(claim: Claim, left: Sequence[bytes]) -> ItemSettlement:
    """The user's code could not go on, through no fault of the item; ``left`` of its items are not
    done.
    """
    payload = claim.payload
    if payload is None or len(left) == len(payload.items):
        return given_back(claim)
    if claim.membership.is_locking:
        left_there = keep_operations(claim, left, failures=claim.failures, wait_s=0.0)
        return ItemSettlement(claim, (*left_there, *release_operations(claim)), ItemOutcome.GIVEN_BACK)
    claim.is_now(Payload(list(left), payload.note))
    return given_back(claim)


def corrupt(claim: Claim, error: Exception) -> ItemSettlement:
    """Its bytes, or its values, cannot be understood."""
    items = claim.payload.items if claim.payload else ()
    return ItemSettlement(
        claim,
        dead_letter_operations(claim, items, reason="corrupt", error=error, failures=claim.failures),
        ItemOutcome.SET_ASIDE,
    )


def corrupt_values(claim: Claim, bad: Sequence[bytes], good: Sequence[bytes], error: Exception) -> ItemSettlement:
    """Some of its values cannot be understood; it stays ours with the others."""
    *_, dead = dead_letter_operations(claim, bad, reason="corrupt", error=error, failures=claim.failures)
    left_there = keep_operations(claim, good, failures=claim.failures, wait_s=0.0)
    return ItemSettlement(claim, (*left_there, dead), ItemOutcome.KEPT)


def died(claim: Claim, mode: ErrorMode, retry: RetryPolicy) -> ItemSettlement | None:
    """Consumers died over it: what the policy makes of that; ``None``: it is tried again."""
    if not claim.deaths:
        return None
    decision = retry.decision(mode, claim.failures)
    if decision is RetryDecision.RETRY or claim.failures < (retry.attempts or math.inf):
        return None
    error = ConsumerDied(f"{claim.deaths} consumers died while they worked on it")
    if decision is RetryDecision.DELETE:
        return ItemSettlement(claim, ack_operations(claim), ItemOutcome.DELETED)
    items = claim.payload.items if claim.payload else ()
    operations = dead_letter_operations(claim, items, reason="died", error=error, failures=claim.failures)
    return ItemSettlement(claim, operations, ItemOutcome.SET_ASIDE)


def failed(claim: Claim, left: Sequence[bytes], error: BaseException, mode: ErrorMode, retry: RetryPolicy) -> ItemSettlement:
    """The user's code raised; ``left`` of its items are not done. In KEEP mode, when it is tried
    again, it stays claimed.
    """
    failures = claim.failures + 1
    decision = retry.decision(mode, failures)
    if decision is RetryDecision.DELETE:
        return ItemSettlement(claim, ack_operations(claim), ItemOutcome.DELETED)
    if decision is RetryDecision.SET_ASIDE:
        reason = "corrupt" if isinstance(error, CorruptItem) else "attempts"
        return ItemSettlement(
            claim, dead_letter_operations(claim, left, reason=reason, error=error, failures=failures), ItemOutcome.SET_ASIDE
        )
    wait_s = retry.wait_s(failures)
    until = now_ms() + int(wait_s * 1000)
    if mode is ErrorMode.KEEP:
        return ItemSettlement(claim, keep_operations(claim, left, failures=failures, wait_s=wait_s), ItemOutcome.KEPT, until)
    return ItemSettlement(
        claim, requeue_operations(claim, left, failures=failures, wait_s=wait_s), ItemOutcome.REQUEUED, until
    )
