"""Deleting many znodes: some in one multi and, where not all of these can be, each in a transaction
of its own; many are under way at a time.

A transaction here deletes the znode that it is about, and so cannot be applied twice. A lost answer
is then no reason for doubt about the znodes, only about who deleted them: the transaction is sent
again, and finds its znode gone. That counts as done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from enum import Enum

from leaderq import retrying
from leaderq.clock import now_s
from leaderq.errors import (
    BadVersion,
    ConnectionLost,
    LeaderqError,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionExpired,
)
from leaderq.queues.admin.contents import names_at
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.retrying import await_connection
from leaderq.writing.groups import batched
from leaderq.zookeeper import Create, Delete, Operation, Session
from leaderq.zookeeper.paths import join

_TREE_ROUNDS = 5
_UNDER_WAY = 2000
_TOGETHER = 80

OperationGroup = Sequence[Operation]


class BulkOutcome(Enum):
    """What became of a group; where it is not *done*, nothing was."""

    DONE = "done"
    GONE = "gone"
    """Somebody took it, or changed it, first."""
    HELD = "held"
    """Somebody works on it."""
    STUCK = "stuck"
    """It has children, which no item has."""


_OUTCOMES: dict[type[BaseException], BulkOutcome] = {
    NoNode: BulkOutcome.GONE,
    BadVersion: BulkOutcome.GONE,
    NodeExists: BulkOutcome.HELD,
    NotEmpty: BulkOutcome.STUCK,
}


def removal(paths: QueuePaths, name: str) -> OperationGroup:
    """The operations that delete an item, unless a consumer holds it: its lock is made and deleted
    in the same transaction, so that nobody ever sees it.
    """
    item = Delete(paths.item(name))
    if paths.lock_path is None:
        return [item]
    lock = paths.lock(name)
    return [Create(lock, ephemeral=True), item, Delete(lock)]


def delete_each(session: Session, groups: Iterable[OperationGroup]) -> Iterator[BulkOutcome]:
    """What became of each group, in their order. Stop asking, and nothing more is sent.

    :raises ConnectionLost: for ``PATIENCE_S`` nothing was answered; what was not told yet may or
        may not have been done.
    """
    for chunk in batched(groups, _UNDER_WAY):
        yield from _deleted(session, chunk)


def _deleted(session: Session, groups: list[OperationGroup]) -> list[BulkOutcome]:
    outcomes: dict[int, BulkOutcome] = {}
    doubtful: set[int] = set()
    parts = list(batched(range(len(groups)), _TOGETHER))
    deadline = now_s() + retrying.PATIENCE_S
    while parts:
        multis = [[op for at in part for op in groups[at]] for part in parts]
        answers = list(zip(parts, map(session.multi_async, multis), strict=True))
        parts = []
        trouble: LeaderqError | None = None
        for part, answer in answers:
            try:
                error: BaseException | None = answer.exception(retrying.PATIENCE_S)
            except FutureTimeout:
                error = ConnectionLost("no answer in time")
            if isinstance(error, ConnectionLost | SessionExpired):
                trouble = error
                doubtful.update(part)
                parts.append(part)
                continue
            deadline = now_s() + retrying.PATIENCE_S
            # not all of these can be deleted: each by itself
            if error is not None and len(part) > 1:
                parts += [[at] for at in part]
            else:
                outcomes.update({at: _outcome(error, at in doubtful) for at in part})
        if trouble is not None:
            if now_s() >= deadline:
                raise trouble
            await_connection(session, deadline)
    return [outcomes[at] for at in range(len(groups))]


def _outcome(error: BaseException | None, is_doubtful: bool) -> BulkOutcome:
    if error is None:
        return BulkOutcome.DONE
    if (outcome := _OUTCOMES.get(type(error))) is None:
        raise error
    return BulkOutcome.DONE if is_doubtful and outcome is BulkOutcome.GONE else outcome


def delete_tree(session: Session, path: str) -> int:
    """Delete a znode with all below it; returns how many that were. What comes meanwhile goes too,
    as long as it does not come faster.

    :raises NotEmpty: it does.
    """
    deleted = 0
    for _ in range(_TREE_ROUNDS):
        names = names_at(session, path)
        outcomes = delete_each(session, ([Delete(join(path, name))] for name in names))
        for name, outcome in list(zip(names, outcomes, strict=True)):
            if outcome is BulkOutcome.STUCK:
                deleted += delete_tree(session, join(path, name))
            else:
                deleted += outcome is BulkOutcome.DONE
        (outcome,) = delete_each(session, [[Delete(path)]])
        if outcome is not BulkOutcome.STUCK:
            return deleted + (outcome is BulkOutcome.DONE)
    raise NotEmpty(f"{path} is written to while it is deleted", path=path)
