"""The groups of one multi, and what an answer says of them (pure)."""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
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
from leaderq.queues.tallying.group import Group
from leaderq.zookeeper import Operation, SetData


class Fate(Enum):
    """What an answer says of a batch."""

    APPLIED = "applied"
    REFUSED = "refused"
    """One of its operations failed by itself: not applied."""
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


class Batch:
    """The groups of one multi. ``number``: the tally's version that it needs, and raises by one. ``is_doubtful``: it was sent,
    once at least, without an answer."""

    __slots__ = ("error", "fate", "groups", "is_doubtful", "number", "results")

    def __init__(self, number: int, groups: list[Group]) -> None:
        self.number = number
        self.groups = groups
        self.fate: Fate | None = None
        self.results: list[Any] | None = None
        self.error: LeaderqError | None = None
        self.is_doubtful = False

    def operations(self, path: str) -> list[Operation]:
        """The multi; the same each time, so that it may be sent again."""
        operations: list[Operation] = [SetData(path, b"", self.number)]
        for group in self.groups:
            operations += group.operations
        return operations

    def answered(self, answer: Future[list[Any]]) -> None:
        """Note what came."""
        error = None if answer.cancelled() else answer.exception()
        if error is None and not answer.cancelled():
            self.fate, self.results = Fate.APPLIED, answer.result()
            return
        self.error = (
            error if isinstance(error, LeaderqError) else ConnectionLost("the multi was given up: the outcome is unknown")
        )
        self.fate = fate_of(self.error)
        if self.fate is Fate.UNKNOWN:
            self.is_doubtful = True

    @property
    def was_looked_at(self) -> bool:
        """Whether an operation of a group was refused: then the tally stood at ``number``, and no former try was applied."""
        error = self.error
        return self.fate is Fate.REFUSED and isinstance(error, ZooKeeperError) and bool(error.index)

    def settle(self) -> None:
        """It was applied: tell each group."""
        results = self.results
        if results is None:
            for group in self.groups:
                group.settle()
            return
        at = 1
        for group in self.groups:
            end = at + group.count
            group.settle(results[at:end])
            at = end

    def culprit(self) -> tuple[Group, Operation] | None:
        """Of a refused batch: the group to blame, and its operation. The error's index then counts in that group."""
        error = self.error
        if isinstance(error, ZooKeeperError) and error.index is not None:
            at = 1
            for group in self.groups:
                if error.index < at + group.count:
                    error.index -= at
                    return group, group.operations[error.index]
                at += group.count
        return (self.groups[0], self.groups[0].operations[0]) if len(self.groups) == 1 else None


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


def packed(waiting: deque[Group], max_ops: int, max_bytes: int) -> list[Group]:
    """Take the next groups that fit into one multi; those given up meanwhile are left out."""
    taken: list[Group] = []
    count = size = 1
    while waiting:
        head = waiting[0]
        count += head.count
        size += head.size
        if taken and (count > max_ops or size > max_bytes or head.is_alone or taken[-1].is_alone):
            break
        waiting.popleft()
        if head.begin():
            taken.append(head)
        else:
            count -= head.count
            size -= head.size
    return taken
