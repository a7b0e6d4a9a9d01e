"""Operations that belong together, and how they are packed into the multis of a tally (pure but for the futures)."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

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
from leaderq.zookeeper import Create, Operation, SetData

_OP_BYTES = 96  # header, lengths, flags, version, ACL: an upper bound for all kinds of operation


@dataclass(slots=True, eq=False)
class Group:
    """All or none of these. The future gives their results, or ``None`` if they were applied and the answer was lost."""

    operations: tuple[Operation, ...]
    size: int
    future: Future[list[Any] | None] = field(default_factory=Future)
    repairs: int = 0

    def settle(self, result: list[Any] | None = None, error: BaseException | None = None) -> None:
        """Tell who waits; whoever cancelled meanwhile hears nothing."""
        try:
            if error is not None:
                self.future.set_exception(error)
            else:
                self.future.set_result(result)
        except InvalidStateError:
            return


class Fate(Enum):
    """What an answer says of a batch."""

    APPLIED = "applied"
    REFUSED = "refused"
    """One of its operations failed by itself: never applied."""
    BEHIND = "behind"
    """The tally stands elsewhere: a batch before it failed, or it was applied itself by a former try."""
    UNCOUNTED = "uncounted"
    """The tally is not there."""
    UNKNOWN = "unknown"
    """No answer."""
    UNSENT = "unsent"
    """There was no connection to send it over."""
    OVER = "over"
    """The session was closed by its owner."""


@dataclass(slots=True, eq=False)
class Batch:
    """The groups of one multi. ``number``: the tally's version that it needs, and raises by one. ``is_doubtful``: it was sent,
    once at least, without an answer."""

    number: int
    groups: list[Group]
    fate: Fate | None = None
    results: list[Any] | None = None
    error: LeaderqError | None = None
    is_doubtful: bool = False

    def operations(self, path: str) -> list[Operation]:
        """The multi; the same each time, so that it may be sent again."""
        guard = SetData(path, b"", self.number)
        return [guard, *(op for group in self.groups for op in group.operations)]

    def answered(self, answer: Future[list[Any]]) -> None:
        """Note what came."""
        error = None if answer.cancelled() else answer.exception()
        if error is None and not answer.cancelled():
            self.fate, self.results = Fate.APPLIED, answer.result()[1:]
            return
        self.error = (
            error if isinstance(error, LeaderqError) else ConnectionLost("the multi was given up: the outcome is unknown")
        )
        self.fate = fate_of(self.error)
        self.is_doubtful = self.is_doubtful or self.fate is Fate.UNKNOWN

    def settle(self) -> None:
        """It was applied: tell each group."""
        at = 0
        for group in self.groups:
            count = len(group.operations)
            group.settle(None if self.results is None else self.results[at : at + count])
            at += count

    def culprit(self) -> tuple[int, Operation] | None:
        """Of a refused batch: the position of the group to blame, and its operation. The error's index then counts in it."""
        error = self.error
        if not isinstance(error, ZooKeeperError) or error.index is None:
            return (0, self.groups[0].operations[0]) if len(self.groups) == 1 else None
        at = 1
        for position, group in enumerate(self.groups):
            if error.index < at + len(group.operations):
                error.index -= at
                return position, group.operations[error.index]
            at += len(group.operations)
        return None


def fate_of(error: LeaderqError) -> Fate:
    """What an error says of the multi that it answered."""
    if isinstance(error, SessionClosed):
        return Fate.OVER
    if isinstance(error, NotConnected):
        return Fate.UNSENT
    if isinstance(error, ConnectionLost | SessionExpired):
        return Fate.UNKNOWN
    if isinstance(error, ZooKeeperError) and error.index == 0:
        if isinstance(error, BadVersion):
            return Fate.BEHIND
        if isinstance(error, NoNode):
            return Fate.UNCOUNTED
    return Fate.REFUSED


def estimated_bytes(operations: Sequence[Operation], chroot_bytes: int) -> int:
    """An upper bound of what these take in a request."""
    return sum(_estimated(op) + chroot_bytes for op in operations)


def packed(waiting: deque[Group], max_ops: int, max_bytes: int) -> list[Group]:
    """Take the next groups that fit into one multi; those cancelled meanwhile are left out."""
    taken: list[Group] = []
    count = size = 1
    while waiting:
        head = waiting[0]
        if taken and (count + len(head.operations) > max_ops or size + head.size > max_bytes):
            break
        waiting.popleft()
        if head.future.running() or head.future.set_running_or_notify_cancel():
            taken.append(head)
            count += len(head.operations)
            size += head.size
    return taken


def _estimated(op: Operation) -> int:
    data = len(op.data) if isinstance(op, (Create, SetData)) else 0
    return _OP_BYTES + len(op.path) * (1 if op.path.isascii() else 4) + data
