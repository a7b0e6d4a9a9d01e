"""An item, from when it is claimed to its end: the one record of it, and all its transitions.

=========  ==================  ==========================================================
from       to                  written, with a lock path / without
=========  ==================  ==========================================================
waiting    claimed             ``Create(lock)``, ``Check(item, v)`` / ``Delete(item, v)``
claimed    done, deleted       ``Delete(item)``, ``Delete(lock)`` / nothing
claimed    dead                the same, and ``Create(dead letter)``
claimed    waiting, requeued   the same, and ``Create(item, sequential)``
claimed    waiting, released   ``Delete(lock)`` / ``Create(item)``, in its old place
claimed    claimed, kept       ``SetData(item)`` / nothing
=========  ==================  ==========================================================

A failure is counted by *requeued*, by *kept* after an error, and by the death of a consumer;
*done*, *released* and *interrupted* count none. Only *requeued* and *kept* let an item rest.

Each transition is written as a whole or not at all. Items are read first (one multiRead), then
claimed *as read*, many in one multi of the membership's writer, all or none. If another consumer
has one of them, the others are read again with all locks, and those that are free are claimed. The
answer to every claim is waited for: an unnoticed success would leave items that nobody works on. If
a settlement is refused, others in the same multi are not touched.

What happens on each failure: *item gone, locked, changed*: left out; *not to be touched yet* (its
note says so), *not to be read, locked or deleted*: left to rest; *unreadable*: claimed
nevertheless, so that it can be set aside; *connection lost*: the writer finds out; *session over*
with a lock path: nothing is ours.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from leaderq.base import clock
from leaderq.base.arguments import MAX_S
from leaderq.engine.members import Membership
from leaderq.errors import (
    BadVersion,
    ConnectionLost,
    CorruptItem,
    LeaderqError,
    NodeExists,
    NoNode,
    told,
)
from leaderq.queues.consumers import ErrorMode, QueueOptions
from leaderq.queues.wire.names import SIMPLE_PREFIX, prefix_of
from leaderq.queues.wire.payload import Note, decode, encode, is_compressed
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.zookeeper import Check, Create, Delete, Operation, SetData
from leaderq.zookeeper.writing.groups import OperationGroup, Operations, estimated_bytes

log = logging.getLogger(__name__)

_NO_NOTE = Note()
_MAX_ERROR = 1000
TROUBLE_S = 5.0
"""So long an item rests that the servers do not let us have, or settle, though nobody else has it:
otherwise it would be tried again at once, and before all its neighbours."""


@dataclass(slots=True, eq=False)
class Claim:
    """One item that is claimed, or about to be. ``created_ms``: when its znode was made;
    ``version``: that of the data that was read. ``items``: the values that are not done; empty if
    the data cannot be read, and ``error`` then says why. ``note``: what former consumers wrote
    about the item; ``deaths``: how many consumers died over it that the note does not count.
    ``is_raw``: the item is of a simple queue, one value without a frame or a note. ``count``: how
    many values it had at first; 1 if that is not known. ``is_lost``: the servers said that it is
    not ours any more.
    """

    name: str
    data: bytes
    created_ms: int
    version: int
    membership: Membership
    deaths: int = 0
    error: CorruptItem | None = None
    items: Sequence[bytes] = ()
    note: Note = _NO_NOTE
    is_raw: bool = False
    count: int = 1
    is_lost: bool = False

    def __post_init__(self) -> None:
        if self.name.startswith(SIMPLE_PREFIX):
            self.is_raw, self.items = True, (self.data,)
        else:
            try:
                payload = decode(self.data)
                self.items, self.note = payload.items, payload.note or _NO_NOTE
            except CorruptItem as exc:
                self.error = exc
        self.count = len(self.items) or 1

    @property
    def operations(self) -> tuple[Operation, ...]:
        """The operations that claim the item; they fail if it has changed since it was read."""
        membership = self.membership
        item = membership.paths.item(self.name)
        if not membership.is_locking:
            return (Delete(item, self.version),)
        lock = Create(membership.paths.lock(self.name), membership.mark.encode(), ephemeral=True)
        return lock, Check(item, self.version)

    @property
    def failures(self) -> int:
        """How often a consumer has failed at the item or died over it."""
        return self.note.attempt + self.deaths

    @property
    def enqueued_ms(self) -> int:
        return self.note.enqueued_ms or self.created_ms


@dataclass
class ClaimResult:
    """The result of trying to claim some names.

    ``claims``: the items that are ours. ``resting``: names that must wait, and until when, in ms
    since the epoch. ``gone``: names that others deleted. ``locked``: names that others work on.
    ``again``: names to try again, because they changed or nothing is known of them.
    ``is_record_gone``: whether somebody has deleted what the record of the claim was to be written
    to.
    """

    claims: list[Claim] = field(default_factory=list)
    resting: dict[str, int] = field(default_factory=dict)
    gone: list[str] = field(default_factory=list)
    locked: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    is_record_gone: bool = False

    def rest(self, paths: QueuePaths, name: str, error: object) -> None:
        self.resting[name] = clock.now_ms() + int(TROUBLE_S * 1000)
        phrase = "item cannot be claimed now queue=%s item=%s error=%s"
        log.warning(phrase, paths.path, name, error)


def judged(
    membership: Membership,
    names: Sequence[str],
    rows: Mapping[str, Any],
    held: Collection[str],
    most_values: int,
) -> ClaimResult:
    """Sort these names by what was read of them (``rows``), and by what others have locked as far
    as is known (``held``). The ``claims`` are still to be made; they have at most ``most_values``
    values together, or are a single znode.
    """
    found = ClaimResult()
    now, room = clock.now_ms(), most_values
    for name in names:
        if name in held:
            found.locked.append(name)
        elif name not in rows:  # of what was asked for, only the first are read, as many as fit
            found.again.append(name)
        elif not isinstance(row := rows[name], tuple):
            if isinstance(row, NoNode):
                found.gone.append(name)
            else:
                found.rest(membership.paths, name, row)
        else:
            claim = Claim(name, row[0], row[1], row[2], membership)
            if (until_ms := claim.note.not_before_ms or 0) > now:
                found.resting[name] = until_ms
            elif found.claims and claim.count > room:
                found.again.append(name)
            else:
                found.claims.append(claim)
                room -= claim.count
    return found


def claim(found: ClaimResult, record: Sequence[Operation], meanwhile: Callable[[], object]) -> None:
    """Claim the items in ``found.claims``, all or none, and change ``found`` to say what came of
    it. ``record``: operations for the same multi. ``meanwhile``: called while it is under way.
    """
    wanted, found.claims = found.claims, []
    if not wanted:
        return
    membership, operations = wanted[0].membership, [op for one in wanted for op in one.operations]
    sent = membership.writer.submit([*operations, *record], are_valid=True)
    meanwhile()
    try:
        sent.result()
        found.claims = wanted
        return
    except LeaderqError as exc:
        error = exc
    names = [one.name for one in wanted]
    if isinstance(error, ConnectionLost) or (index := getattr(error, "index", None)) is None:
        log.debug("nothing claimed error=%s", error)
    elif index >= len(operations):
        found.is_record_gone = True
    else:
        culprit = names.pop(index // len(wanted[0].operations))
        if isinstance(error, NoNode):
            found.gone.append(culprit)
        elif isinstance(error, NodeExists):
            found.locked.append(culprit)
        elif isinstance(error, BadVersion):
            found.again.append(culprit)
        else:
            found.rest(membership.paths, culprit, error)
    found.again += names


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
    """The error in a dead letter if consumers died over the item, and told none."""


class ItemSettlement(OperationGroup):
    """What to write about one item. ``rest_until_ms``: when it may be tried again; 0: at once."""

    __slots__ = ("claim", "outcome", "rest_until_ms")

    def __init__(
        self, claim: Claim, operations: Operations, outcome: ItemOutcome, rest_until_ms: int = 0
    ) -> None:
        super().__init__(operations, 0)
        self.claim, self.outcome, self.rest_until_ms = claim, outcome, rest_until_ms

    @property
    def is_return(self) -> bool:
        """Whether the item waits at its old place again once this is written."""
        is_renamed = any(isinstance(op, Create) and op.sequential for op in self.operations)
        return self.outcome is ItemOutcome.RELEASED and not is_renamed


def done(claim: Claim) -> ItemSettlement:
    return ItemSettlement(claim, _removal(claim), ItemOutcome.ACKNOWLEDGED)


def released(claim: Claim, *, is_renamed: bool = False) -> ItemSettlement:
    """Of an item that was not begun. ``is_renamed``: without a lock path, it is created again at
    the tail, because its old name is taken.
    """
    paths = claim.membership.paths
    if claim.membership.is_locking:
        return ItemSettlement(claim, (Delete(paths.lock(claim.name)),), ItemOutcome.RELEASED)
    note = replace(claim.note, enqueued_ms=claim.enqueued_ms)
    again = _again(claim, claim.items, note)
    if not is_renamed:
        again = Create(paths.item(claim.name), again.data)
    return ItemSettlement(claim, (again,), ItemOutcome.RELEASED)


def interrupted(claim: Claim, left: Sequence[bytes]) -> ItemSettlement:
    """After the user's code was interrupted. ``left``: the values that are not done."""
    if len(left) < len(claim.items):
        if claim.membership.is_locking:
            return _freed(claim, rewritten(claim, left))
        claim.items = list(left)
    return released(claim)


def requeued(claim: Claim, left: Sequence[bytes], wait_s: float) -> ItemSettlement:
    """Puts the values ``left`` at the tail, with the item's id, priority or due time. They rest for
    ``wait_s`` seconds; this counts as a failure.
    """
    again = _again(claim, left, _noted(claim, claim.failures + 1, wait_s))
    return ItemSettlement(claim, (*_removal(claim), again), ItemOutcome.REQUEUED)


def corrupt(claim: Claim, error: Exception) -> ItemSettlement:
    """Of an item whose bytes or values cannot be read: a dead letter."""
    return _set_aside(claim, claim.items, "corrupt", error, claim.failures)


def corrupt_values(
    claim: Claim, bad: Sequence[bytes], good: Sequence[bytes], error: Exception
) -> ItemSettlement:
    """Makes the unreadable values ``bad`` a dead letter; the item stays claimed with ``good``."""
    dead = _dead_letter(claim, bad, "corrupt", error, claim.failures)
    return ItemSettlement(claim, (*rewritten(claim, good), dead), ItemOutcome.KEPT)


def died(claim: Claim, options: QueueOptions[Any]) -> ItemSettlement | None:
    """If consumers died over the item too often; ``None``: it is tried again."""
    if not claim.deaths or not options.retry.is_exhausted(claim.failures):
        return None
    if options.error_mode is ErrorMode.DELETE:
        return ItemSettlement(claim, _removal(claim), ItemOutcome.DELETED)
    error = ConsumerDied(f"{claim.deaths} consumers died while they worked on it")
    return _set_aside(claim, claim.items, "died", error, claim.failures)


def failed(
    claim: Claim,
    left: Sequence[bytes],
    error: BaseException,
    options: QueueOptions[Any],
    *,
    stays: bool = True,
) -> ItemSettlement:
    """After the user's code raised. ``left``: the values that are not done. In KEEP mode the item
    stays claimed until its next attempt, unless its worker cannot stay with it (``stays``).
    """
    failures, mode = claim.failures + 1, options.error_mode
    if mode is ErrorMode.DELETE:
        return ItemSettlement(claim, _removal(claim), ItemOutcome.DELETED)
    if options.retry.is_exhausted(failures):
        reason = "corrupt" if isinstance(error, CorruptItem) else "attempts"
        return _set_aside(claim, left, reason, error, failures)
    wait_s = options.retry.delay_s(failures)
    if mode is not ErrorMode.KEEP or not (stays or claim.membership.is_locking):
        return requeued(claim, left, wait_s)
    note = _noted(claim, failures, wait_s)
    kept = rewritten(claim, left, note)
    if not stays:
        return _freed(claim, kept)
    return ItemSettlement(claim, kept, ItemOutcome.KEPT, note.not_before_ms or 0)


def rewritten(claim: Claim, left: Sequence[bytes], note: Note | None = None) -> Operations:
    """Leaves the item in its place with the values ``left``; writes nothing without a lock path,
    where the znode is deleted already.
    """
    if not claim.membership.is_locking:
        return ()
    note = note or _noted(claim, claim.failures)
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
    is_as_read = claim.is_raw or claim.error is not None
    data = claim.data if is_as_read else _encoded(claim, items, note)
    return Create(claim.membership.paths.item(prefix_of(claim.name)), data, sequential=True)


def _set_aside(
    claim: Claim, items: Sequence[bytes], reason: str, error: BaseException, failures: int
) -> ItemSettlement:
    dead = _dead_letter(claim, items, reason, error, failures)
    return ItemSettlement(claim, (*_removal(claim), dead), ItemOutcome.SET_ASIDE)


def _dead_letter(
    claim: Claim, items: Sequence[bytes], reason: str, error: BaseException, failures: int
) -> Create:
    note = replace(
        _noted(claim, failures),
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


def _noted(claim: Claim, failures: int, wait_s: float = 0.0) -> Note:
    """The note of an item wherever it goes; it rests for ``wait_s`` seconds."""
    until_ms = clock.now_ms() + int(min(wait_s, MAX_S) * 1000) if wait_s > 0 else None
    return Note(failures, claim.enqueued_ms, until_ms, claim.note.trace)


def _encoded(claim: Claim, items: Sequence[bytes], note: Note) -> bytes:
    """The data of a znode with these values, and as much of the note as there is room for: the item
    may be as large as a request.
    """
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
