"""The groups of operations of a writer, from their submission to their outcome. Decides which
groups are sent next, and what becomes of those that failed (pure).
:class:`~leaderq.zookeeper.writing.writer.SequencedWriter` calls this under its lock.

A group waits in ``waiting``, is sent in a batch of ``flight``, and is done; or its batch fails:

* a batch that was *certainly* not applied is undone: its groups wait again, at the front, and may
  get another number;
* a *doubtful* batch (sent, but not answered) is kept whole in ``again`` until the writer has been
  read. If it was applied, it is done. If not, it is sent again unchanged, under its number, so that
  only the copy that reaches the servers first is applied.

A server keeps its last 500 transactions in memory, and of each value in a multi three copies. So a
multi larger than ``max_bytes`` is followed by *small* multis, which push it out of that memory: one
for each further ``max_bytes``, with only the writer's own operation.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, TypeVar

from leaderq.base.arguments import instance, require, several
from leaderq.errors import (
    BadVersion,
    ConnectionLost,
    LeaderqError,
    NoNode,
    NotConnected,
    SessionClosed,
    SessionExpired,
    ZooKeeperError,
)
from leaderq.threads import primitives
from leaderq.threads.listeners import is_from_outside
from leaderq.zookeeper import Create, Operation, SetData
from leaderq.zookeeper.paths import validated_path
from leaderq.zookeeper.requests import checked
from leaderq.zookeeper.writing.in_flight import InFlightLimit

log = logging.getLogger(__name__)
T = TypeVar("T")

MULTI_BYTES = 64 * 1024
"""Bytes of one multi, by estimate, unless one group is larger. A server keeps its last 500
transactions in memory, twice: at 64 KB that is about 80 MB more than single creates leave there, at
768 KB 500 MB.
"""
MULTI_OPS = 256
"""Operations of one multi, unless one group has more; each costs the server 300 bytes."""
_OP_BYTES = 96  # header, lengths, flags, version, ACL: an upper bound for all kinds of operation
MARGIN_BYTES = 4096
"""Bytes of a request left to the writer's own operation, header and estimate."""


Operations = tuple[Operation, ...]
"""What is written as a whole or not at all."""
Told = Callable[[list[Any], LeaderqError | None], object]


def _unheard(_groups: object, _error: object) -> None:
    """Nobody asks."""


class OperationGroup:
    """Operations that are applied all together, or not at all. ``told(groups, error)`` is called
    once with the outcome: ``None``, or the error why the group was not applied. Groups of one multi
    with the same ``told`` hear of it in one call. It must not block, because it runs on the
    session's thread or a writer's.

    It is a slim object, because a queue makes one for every item. It has no lock: the writer
    changes it under the writer's own lock.
    """

    __slots__ = ("_operations", "count", "results", "size", "told")

    def __init__(self, operations: Sequence[Operation], size: int, told: Told = _unheard) -> None:
        self._operations = operations
        self.count = len(operations)
        self.told = told
        self.results: list[Any] | None = None
        """Of its operations; ``None`` also if it was applied and the answer was lost."""
        self.size = size
        """Bytes in a request, an upper bound."""

    @property
    def operations(self) -> Sequence[Operation]:
        return self._operations


def tell(groups: Sequence[OperationGroup], error: LeaderqError | None = None) -> None:
    """Tell those who wait for these groups their outcome. If one of them raises, that is logged, so
    that the others hear of theirs, too.
    """
    for told, some in groupby(groups, attrgetter("told")):
        together = list(some)
        try:
            told(together, error)
        except BaseException as exc:  # of any kind: the thread is not that of whoever is told
            if is_from_outside(exc):
                raise
            log.exception("callback of writes failed first=%r", together[0].operations)


def estimated_bytes(operations: Sequence[Operation], chroot_bytes: int) -> int:
    size = 0
    for op in operations:
        data = len(op.data) if isinstance(op, (Create, SetData)) else 0
        size += _OP_BYTES + len(op.path) * (1 if op.path.isascii() else 4) + data + chroot_bytes
    return size


def validated(operations: Sequence[Operation]) -> Sequence[Operation]:
    """Return ``operations`` if they can be sent to ZooKeeper.

    :raises ConfigurationError: one cannot: its path, its data or its version. Found here, the error
        reaches this caller, and not the others that share the multi.
    """
    for op in operations:
        require(instance("operation", op, Operation))
        validated_path(op.path, open_ended=isinstance(op, Create) and op.sequential)
        checked(getattr(op, "data", b""), getattr(op, "version", -1))
    return operations


def given_operations(name: str, given: Any) -> Operations:
    """The operations that a user gave under this name, for a multi that others may share.

    :raises ConfigurationError: they are not several, or one cannot be sent.
    """
    operations = tuple(several(name, given, "operations"))
    validated(operations)
    return operations


class MultiStatus(Enum):
    """What the answer to a batch says about it."""

    APPLIED = "applied"
    REFUSED = "refused"
    """One of its operations failed by itself: not applied."""
    NOT_NOW = "not now"
    """Not applied: there was no connection to send it over, or the guard is missing or has another
    version, because a batch before it failed or a former try was applied.
    """
    UNKNOWN = "unknown"
    """No answer."""
    OVER = "over"
    """The session was closed by its owner."""


@dataclass(eq=False, repr=False, slots=True)
class PackedMulti:
    """The groups of one multi. ``number``: the version that the guard must have, which the multi
    raises by one. ``is_doubtful``: the multi was sent at least once without an answer. ``sent_s``
    and ``under_way``: when it was sent, and how many bytes were under way then, with it.
    """

    number: int
    groups: list[OperationGroup]
    is_doubtful: bool = False
    status: MultiStatus | None = None
    error: LeaderqError | None = None
    results: list[Any] | None = None
    sent_s: float = field(init=False)
    under_way: int = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.size = sum(group.size for group in self.groups)

    def operations(self, path: str) -> list[Operation]:
        operations: list[Operation] = [SetData(path, b"", self.number)]
        for group in self.groups:
            operations += group.operations
        return operations

    def note_answer(self, answer: primitives.Future[list[Any]]) -> None:
        try:
            self.status, self.results = MultiStatus.APPLIED, answer.result()
            return
        except LeaderqError as exc:
            self.error = exc
        except BaseException:  # noqa: BLE001 - cancelled
            self.error = ConnectionLost("the multi was given up: the outcome is unknown")
        self.status = status_of(self.error)
        self.is_doubtful = self.is_doubtful or self.status is MultiStatus.UNKNOWN

    def settle(self) -> None:
        """Tell each group its results: the multi was applied."""
        if (results := self.results) is not None:
            at = 1
            for group in self.groups:
                end = at + group.count
                group.results = results[at:end]
                at = end
        tell(self.groups)

    def culprit(self) -> tuple[OperationGroup, Operation] | None:
        """The group and the operation that ZooKeeper refused, or ``None`` if they are unknown.
        Makes the error's ``index`` count within the group.
        """
        error = self.error
        if isinstance(error, ZooKeeperError) and error.index is not None:
            at = 1
            for group in self.groups:
                if error.index < at + group.count:
                    error.index -= at
                    return group, group.operations[error.index]
                at += group.count
        return (self.groups[0], self.groups[0].operations[0]) if len(self.groups) == 1 else None


def status_of(error: LeaderqError) -> MultiStatus:
    """What ``error``, as the answer to a multi, says about that multi."""
    if isinstance(error, SessionClosed):
        return MultiStatus.OVER
    if isinstance(error, NotConnected):
        return MultiStatus.NOT_NOW
    if isinstance(error, ConnectionLost | SessionExpired):
        return MultiStatus.UNKNOWN
    is_guard = isinstance(error, BadVersion | NoNode) and error.index == 0
    return MultiStatus.NOT_NOW if is_guard else MultiStatus.REFUSED


def packed(waiting: deque[OperationGroup], max_ops: int, max_bytes: float) -> list[OperationGroup]:
    """Take from ``waiting`` the next groups that fit into one multi, beside the writer's own
    operation.
    """
    taken: list[OperationGroup] = []
    count, size = 1, 0
    while waiting:
        head = waiting[0]
        count += head.count
        size += head.size
        if taken and (count > max_ops or size > max_bytes):
            break
        taken.append(waiting.popleft())
    return taken


def batched(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yields ``items`` in lists of ``size``; the last list may be shorter."""
    rest = iter(items)
    while some := list(islice(rest, size)):
        yield some


RENEW_AT = 1 << 30
"""The number from which on the guard is made again: a version has 31 bits."""
_PACE = 16
"""With two multis or more under way, each further one must have that many groups for each of them,
or be large: small batches gather while the servers are busy.
"""
_LARGE_BYTES = 4096
_Batches = list[PackedMulti]


class SendQueue:
    """See the module."""

    def __init__(self, *, max_ops: int, max_bytes: int) -> None:
        self.waiting: deque[OperationGroup] = deque()
        self.flight: deque[PackedMulti] = deque()
        self.again: deque[PackedMulti] = deque()
        self.number = 0
        """The number of the next new batch."""
        self.is_halted = True
        """Whether nothing is sent: not open yet, or in trouble."""
        self._max_ops = max_ops
        self._max_bytes = max_bytes
        self.limit = InFlightLimit()
        self._small_due = 0
        self._under_way = self._bytes = 0  # of the flight: those with groups, and all

    @property
    def may_send(self) -> bool:
        """Whether :meth:`next_batch` may return a batch. If not, the next answer makes the writer
        look again.
        """
        if self.is_halted:
            return False
        under_way = self._under_way
        is_full = self._bytes >= self.limit.size
        if self.again:
            return not is_full
        if self.number >= RENEW_AT:
            return False
        if self._small_due:
            return True
        waiting = self.waiting
        if is_full or not waiting:
            return False
        return (
            under_way <= 1 or len(waiting) >= _PACE * under_way or waiting[-1].size >= _LARGE_BYTES
        )

    @property
    def needs_renewal(self) -> bool:
        """Whether the guard must be made again before anything new is sent, and nothing is under
        way.
        """
        return not (self.number < RENEW_AT or self.is_halted or self.flight or self.again)

    def next_batch(self) -> PackedMulti | None:
        if not self.may_send:
            return None
        if self.again:
            batch = self.again.popleft()
        else:
            groups: list[OperationGroup] = []
            if self._small_due:
                self._small_due -= 1
            else:
                groups = packed(self.waiting, self._max_ops, self._multi_bytes())
                if not groups:
                    return None
            batch = PackedMulti(self.number, groups)
            self._small_due += batch.size // self._max_bytes
            self.number += 1
        batch.status = batch.error = None
        self.flight.append(batch)
        self._under_way += bool(batch.groups)
        self._bytes += batch.size
        batch.under_way = self._bytes
        return batch

    def _multi_bytes(self) -> float:
        """The most bytes of the next multi: all that a multi may have if it takes all that waits;
        otherwise half the limit, so that the servers work on one while the next is on its way.
        """
        size = 0
        for group in self.waiting:
            size += group.size
            if size > self._max_bytes:
                return min(self._max_bytes, self.limit.size / 2)
        return self._max_bytes

    def take_applied(self, now_s: float) -> list[PackedMulti]:
        """Remove and return the batches at the head of the flight that were applied by ``now_s``.
        Any other answer halts the line.
        """
        done: list[PackedMulti] = []
        flight = self.flight
        while flight and flight[0].status is MultiStatus.APPLIED:
            done.append(batch := flight.popleft())
            self._under_way -= bool(batch.groups)
            self._bytes -= batch.size
            self.limit = self.limit.after(batch.sent_s, now_s, batch.under_way)
        return done

    def take_failed(self) -> list[PackedMulti]:
        """Once the queue is halted and everything under way was answered, remove and return all of
        that; before, return nothing.
        """
        if not self.is_halted or any(batch.status is None for batch in self.flight):
            return []
        return self._landed()

    def blame(self, failed: list[PackedMulti]) -> PackedMulti | None:
        """Return the batch that ZooKeeper refused because of an operation in it, if that is what
        happened. Then all batches under way wait again. None of them was applied, because those
        after the refused one need a version that the guard did not reach.
        """
        first = failed[0]
        # An operation of a group was refused: so the guard had its number, and no former try was
        # applied.
        was_examined = isinstance(first.error, ZooKeeperError) and bool(first.error.index)
        if (
            first.status is not MultiStatus.REFUSED
            or (first.is_doubtful and not was_examined)
            or any(one.status is MultiStatus.UNKNOWN for one in failed)
        ):
            return None
        self._undo([*failed, *self.again])
        self.again.clear()
        return first

    def set_aside(self, failed: list[PackedMulti]) -> None:
        """Keep the batches up to the last doubtful one until the guard is read; the groups of all
        batches after it wait again.
        """
        batches = [*failed, *self.again]
        keep = 1 + max(
            (position for position, batch in enumerate(batches) if batch.is_doubtful), default=-1
        )
        self.again = deque(batches[:keep])
        self._undo(batches[keep:])

    def reconcile(self, version: int, *, is_new: bool) -> tuple[_Batches, _Batches]:
        """Decide on the batches that were set aside, now that the guard was read and has
        ``version``. ``is_new``: the guard was made again, with a new count. Returns the batches
        that were applied, and those whose outcome cannot be known.
        """
        batches = list(self.again)
        self.again.clear()
        left = [batch for batch in batches if batch.number >= version]
        is_off = bool(left) and left[0].number > version
        # somebody else wrote
        is_foreign = any(batch.number < version and not batch.is_doubtful for batch in batches)
        if is_new or is_off or is_foreign:
            lost = [batch for batch in batches if batch.is_doubtful]
            self._undo([batch for batch in batches if not batch.is_doubtful])
            self.number = version
            return [], lost
        self.again.extend(left)
        self.number = left[-1].number + 1 if left else version
        return [batch for batch in batches if batch.number < version], []

    def withdraw(self, wanted: Callable[[OperationGroup], bool]) -> list[OperationGroup]:
        """Remove and return the waiting groups for which ``wanted(group)`` is true."""
        found = [group for group in self.waiting if wanted(group)]
        self.waiting = deque(group for group in self.waiting if not wanted(group))
        return found

    def empty(self) -> tuple[list[PackedMulti], list[OperationGroup]]:
        """Give everything up: return the batches that were ever sent, and the groups that never
        were.
        """
        batches, groups = [*self._landed(), *self.again], list(self.waiting)
        self.again.clear()
        self.waiting.clear()
        self.is_halted = True
        return batches, groups

    def _landed(self) -> list[PackedMulti]:
        """Remove and return all batches under way."""
        batches = list(self.flight)
        self.flight.clear()
        self._under_way = self._bytes = 0
        return batches

    def _undo(self, batches: Sequence[PackedMulti]) -> None:
        if not batches:
            return
        self.waiting.extendleft(reversed([group for batch in batches for group in batch.groups]))
        self.number = batches[0].number
