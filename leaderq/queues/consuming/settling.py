"""Writes what has become of items, many in one multi, without waiting.

Parts go together as long as all is well. If ZooKeeper refuses one (somebody deleted the item behind our back), its owner is told and the
others are sent again. Runs on whatever thread calls, and on the session's; blocks neither.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from leaderq.errors import ConnectionLost, LeaderqError, SessionExpired, TooLarge, ZooKeeperError
from leaderq.queues.consuming.claim import Claim
from leaderq.zookeeper import Create, Operation

log = logging.getLogger(__name__)

MAX_PARTS = 200
Told = Callable[["Part", LeaderqError | None, Sequence[Any] | None], None]


@dataclass(slots=True, eq=False)
class Part:
    """What is to be written of one item. ``rest_until_ms``: if it is created again, not to be touched until then."""

    claim: Claim
    operations: tuple[Operation, ...]
    what: str
    rest_until_ms: int = 0

    def created(self, results: Sequence[Any] | None) -> str | None:
        """The name under which the item was created again, if the answer tells."""
        if results is None:
            return None
        for op, result in zip(self.operations, results, strict=True):
            if isinstance(op, Create) and not op.ephemeral and isinstance(result, str):
                return result.rpartition("/")[2]
        return None


def settle(parts: Sequence[Part], told: Told) -> None:
    """Write these through the tallies of their holds; ``told(part, error, results)`` is called once for each."""
    waiting: dict[int, list[Part]] = {}
    for part in parts:
        if part.operations:
            waiting.setdefault(id(part.claim.hold), []).append(part)
        else:
            told(part, None, [])
    for of_hold in waiting.values():
        for begin in range(0, len(of_hold), MAX_PARTS):
            _send(of_hold[begin : begin + MAX_PARTS], told)


def _send(parts: list[Part], told: Told) -> None:
    tally = parts[0].claim.hold.tally
    answer = tally.submit([op for part in parts for op in part.operations])
    answer.add_done_callback(partial(_answered, parts, told))


def _answered(parts: list[Part], told: Told, answer: Future[list[Any] | None]) -> None:
    error = ConnectionLost("given up") if answer.cancelled() else answer.exception()
    if error is None:
        results, at = answer.result(), 0
        for part in parts:
            count = len(part.operations)
            _tell(told, part, None, None if results is None else results[at : at + count])
            at += count
        return
    known = error if isinstance(error, LeaderqError) else ConnectionLost(f"{type(error).__name__}: {error}")
    if isinstance(known, TooLarge) and len(parts) > 1:
        for part in parts:
            _send([part], told)
        return
    blamed = _blamed(parts, known)
    for part in parts if blamed is None else (blamed,):
        _tell(told, part, known, None)
    if blamed is not None and (rest := [part for part in parts if part is not blamed]):
        _send(rest, told)


def _blamed(parts: list[Part], error: LeaderqError) -> Part | None:
    """The part that failed by itself; ``None`` if all did."""
    if isinstance(error, ConnectionLost | SessionExpired) or not isinstance(error, ZooKeeperError) or error.index is None:
        return None
    at = 0
    for part in parts:
        if error.index < at + len(part.operations):
            error.index -= at
            return part
        at += len(part.operations)
    return None


def _tell(told: Told, part: Part, error: LeaderqError | None, results: Sequence[Any] | None) -> None:
    try:
        told(part, error, results)
    except Exception:
        log.exception("what became of %s could not be noted; the queue goes on", part.claim.name)
