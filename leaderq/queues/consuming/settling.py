"""What becomes of an item that was claimed, and what is written for it.

With a lock path the item's znode stands until then: it is deleted together with its lock. Without
one it was deleted when it was claimed, and what is to survive is created again. Each settlement is
all or none: if ZooKeeper refuses one, others in the same multi are not touched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from leaderq import clock
from leaderq.errors import CorruptItem, LeaderqError, told
from leaderq.queues.consumers import ErrorMode
from leaderq.queues.consuming.claims import Claim
from leaderq.queues.wire.names import prefix_of
from leaderq.queues.wire.payload import Note, encode, is_compressed
from leaderq.threads import Retry
from leaderq.writing.groups import OperationGroup, estimated_bytes
from leaderq.zookeeper import Create, Delete, Operation, SetData

_MAX_ERROR = 1000
Operations = tuple[Operation, ...]


class ItemOutcome(Enum):
    """What becomes of a claimed item; the value is the word in the log."""

    ACKNOWLEDGED = "acknowledged"
    DELETED = "deleted"
    SET_ASIDE = "set aside"
    REQUEUED = "requeued"
    KEPT = "kept"
    """It stays where it is, claimed; only its note is written."""
    RELEASED = "released"


class ConsumerDied(LeaderqError):
    """Why an item became a dead letter if no consumer lived to say."""


class ItemSettlement(OperationGroup):
    """What to write of one item. ``rest_until_ms``: how long it rests if created again."""

    __slots__ = ("claim", "on_settled", "outcome", "rest_until_ms")

    def __init__(
        self, claim: Claim, operations: Operations, outcome: ItemOutcome, rest_until_ms: int = 0
    ) -> None:
        super().__init__(operations, 0)
        self.claim = claim
        self.outcome = outcome
        self.rest_until_ms = rest_until_ms
        self.on_settled: OnSettled | None = None

    @property
    def is_return(self) -> bool:
        """Whether its name waits again, at its old place, once this is written."""
        if self.outcome is not ItemOutcome.RELEASED or self.rest_until_ms:
            return False
        return not any(isinstance(op, Create) and op.sequential for op in self.operations)

    def on_outcome(self, results: list[Any] | None, error: LeaderqError | None) -> None:
        if self.on_settled is not None:
            self.on_settled(self, error, results)

    def created(self, results: Sequence[Any] | None) -> str | None:
        if results is None:
            return None
        for op, result in zip(self.operations, results, strict=True):
            if isinstance(op, Create) and not op.ephemeral and isinstance(result, str):
                return result.rpartition("/")[2]
        return None


OnSettled = Callable[[ItemSettlement, LeaderqError | None, Sequence[Any] | None], None]


def done(claim: Claim) -> ItemSettlement:
    return ItemSettlement(claim, _removal(claim), ItemOutcome.ACKNOWLEDGED)


def released(claim: Claim, *, in_place: bool = False) -> ItemSettlement:
    """It was not begun. ``in_place``: without a lock path, under its old name if it is free."""
    paths = claim.membership.paths
    if claim.membership.is_locking:
        release: Operation = Delete(paths.lock(claim.name))
    elif in_place or claim.is_raw:
        release = Create(paths.item(claim.name), claim.data)
    else:
        note = replace(claim.note, enqueued_ms=claim.enqueued_ms)
        release = _again(claim, claim.items, note)
    return ItemSettlement(claim, (release,), ItemOutcome.RELEASED)


def interrupted(claim: Claim, left: Sequence[bytes]) -> ItemSettlement:
    """The user's code was interrupted; ``left`` are the values not done."""
    if len(left) < len(claim.items):
        if claim.membership.is_locking:
            return _freed(claim, rewritten(claim, left))
        claim.items = list(left)
    return released(claim)


def requeued(claim: Claim, left: Sequence[bytes], wait_s: float) -> ItemSettlement:
    """These of its values go to the tail, with its id, priority or due time, to be tried again
    after ``wait_s``; counts as a failure.
    """
    note, until_ms = _failure_note(claim, claim.failures + 1, wait_s)
    return ItemSettlement(
        claim, (*_removal(claim), _again(claim, left, note)), ItemOutcome.REQUEUED, until_ms
    )


def corrupt(claim: Claim, error: Exception) -> ItemSettlement:
    """Its bytes, or its values, cannot be understood."""
    return _set_aside(claim, claim.items, "corrupt", error, claim.failures)


def corrupt_values(
    claim: Claim, bad: Sequence[bytes], good: Sequence[bytes], error: Exception
) -> ItemSettlement:
    """Some of its values cannot be understood; it stays claimed with the others."""
    dead = _dead_letter(claim, bad, "corrupt", error, claim.failures)
    return ItemSettlement(claim, (*rewritten(claim, good), dead), ItemOutcome.KEPT)


def died(claim: Claim, mode: ErrorMode, retry: Retry) -> ItemSettlement | None:
    """Consumers died over it: the policy's decision; ``None``: it is tried again."""
    if not claim.deaths or not retry.is_exhausted(claim.failures):
        return None
    if mode is ErrorMode.DELETE:
        return ItemSettlement(claim, _removal(claim), ItemOutcome.DELETED)
    error = ConsumerDied(f"{claim.deaths} consumers died while they worked on it")
    return _set_aside(claim, claim.items, "died", error, claim.failures)


def failed(
    claim: Claim,
    left: Sequence[bytes],
    error: BaseException,
    mode: ErrorMode,
    retry: Retry,
    *,
    stays: bool = True,
) -> ItemSettlement:
    """The user's code raised; ``left`` are the values not done. In KEEP mode the item stays claimed
    until its next attempt, unless its worker cannot stay with it.
    """
    failures = claim.failures + 1
    if mode is ErrorMode.DELETE:
        return ItemSettlement(claim, _removal(claim), ItemOutcome.DELETED)
    if retry.is_exhausted(failures):
        reason = "corrupt" if isinstance(error, CorruptItem) else "attempts"
        return _set_aside(claim, left, reason, error, failures)
    wait_s = retry.delay_s(failures)
    if mode is not ErrorMode.KEEP or not (stays or claim.membership.is_locking):
        return requeued(claim, left, wait_s)
    note, until_ms = _failure_note(claim, failures, wait_s)
    kept = rewritten(claim, left, note)
    return ItemSettlement(claim, kept, ItemOutcome.KEPT, until_ms) if stays else _freed(claim, kept)


def rewritten(claim: Claim, left: Sequence[bytes], note: Note | None = None) -> Operations:
    """It stays where it is, with the values not done; only a new consumer needs to know."""
    if not claim.membership.is_locking:
        return ()
    note = note or Note(attempt=claim.failures, enqueued_ms=claim.enqueued_ms)
    return (SetData(claim.membership.paths.item(claim.name), _encoded(claim, left, note)),)


def _removal(claim: Claim) -> Operations:
    paths = claim.membership.paths
    if not claim.membership.is_locking:
        return ()
    return Delete(paths.item(claim.name)), Delete(paths.lock(claim.name))


def _freed(claim: Claim, operations: Operations) -> ItemSettlement:
    lock = claim.membership.paths.lock(claim.name)
    return ItemSettlement(claim, (*operations, Delete(lock)), ItemOutcome.RELEASED)


def _again(claim: Claim, items: Sequence[bytes], note: Note) -> Create:
    data = claim.data if claim.is_raw else _encoded(claim, items, note)
    return Create(claim.membership.paths.item(prefix_of(claim.name)), data, sequential=True)


def _set_aside(
    claim: Claim, items: Sequence[bytes], reason: str, error: BaseException, failures: int
) -> ItemSettlement:
    dead = _dead_letter(claim, items, reason, error, failures)
    return ItemSettlement(claim, (*_removal(claim), dead), ItemOutcome.SET_ASIDE)


def _dead_letter(
    claim: Claim, items: Sequence[bytes], reason: str, error: BaseException, failures: int
) -> Create:
    note = Note(
        attempt=failures,
        enqueued_ms=claim.enqueued_ms,
        reason=reason,
        error=told(error)[:_MAX_ERROR],
        origin=claim.name,
        died_ms=clock.now_ms(),
        raw=claim.error is not None,
    )
    path = f"{claim.membership.paths.dead}/{prefix_of(claim.name)}"
    return Create(
        path, _encoded(claim, [claim.data] if claim.error else items, note), sequential=True
    )


def _failure_note(claim: Claim, failures: int, wait_s: float) -> tuple[Note, int]:
    until_ms = clock.now_ms() + int(wait_s * 1000)
    note = Note(
        attempt=failures,
        enqueued_ms=claim.enqueued_ms,
        not_before_ms=until_ms if wait_s > 0 else None,
    )
    return note, until_ms


def _encoded(claim: Claim, items: Sequence[bytes], note: Note) -> bytes:
    """With as much of the note as there is room for: the item may be as large as a request."""
    membership = claim.membership
    paths, writer = membership.paths, membership.writer
    names = [paths.item(claim.name), f"{paths.dead}/{claim.name}"]
    names += [paths.lock(claim.name)] if membership.is_locking else []
    room = writer.limit - estimated_bytes(list(map(Delete, names)), writer.chroot_bytes)
    for fitting in (note, replace(note, error=None)):
        data = encode(items, fitting, compress=is_compressed(claim.data))
        if len(data) <= room:
            return data
    return encode(items, None, compress=is_compressed(claim.data))
