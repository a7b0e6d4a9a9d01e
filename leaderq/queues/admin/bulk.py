"""Deleting many znodes: some in one multi and, where not all of these can be, each in a transaction
of its own; many are under way at a time.

A transaction here deletes the znode that it is about, and so cannot be applied twice. A lost answer
is then no reason for doubt about the znodes, only about who deleted them: the transaction is sent
again, and finds its znode gone. That counts as done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass
from enum import Enum

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
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.retrying import PATIENCE_S, await_connection, retry_until_connected
from leaderq.writing.groups import batched
from leaderq.zookeeper import Create, Delete, Operation, Session
from leaderq.zookeeper.paths import join

_TREE_ROUNDS = 5
_UNDER_WAY = 2000
_TOGETHER = 80

OperationGroup = Sequence[Operation]


class BulkOutcome(Enum):
    """What became of a group."""

    DONE = "done"
    GONE = "gone"
    """Somebody took it, or changed it, first: nothing was done."""
    HELD = "held"
    """Somebody works on it: nothing was done."""
    STUCK = "stuck"
    """It has children, which no item has: nothing was done."""


_OUTCOMES = {
    NoNode: BulkOutcome.GONE,
    BadVersion: BulkOutcome.GONE,
    NodeExists: BulkOutcome.HELD,
    NotEmpty: BulkOutcome.STUCK,
}


def _delete_each(
    session: Session, groups: Iterable[OperationGroup], patience_s: float
) -> Iterator[BulkOutcome]:
    """What became of each group, in their order. Stop asking, and nothing more is sent.

    :raises ConnectionLost: for ``patience_s`` nothing was answered; what was not told yet may or
        may not have been done.
    """
    for chunk in batched(groups, _UNDER_WAY):
        yield from _deleted(session, chunk, patience_s)


def _deleted(
    session: Session, groups: list[OperationGroup], patience_s: float
) -> list[BulkOutcome]:
    outcomes: dict[int, BulkOutcome] = {}
    doubtful: set[int] = set()
    parts: list[Sequence[int]] = [
        range(len(groups))[at : at + _TOGETHER] for at in range(0, len(groups), _TOGETHER)
    ]
    deadline = now_s() + patience_s
    while parts:
        multis = [[op for at in part for op in groups[at]] for part in parts]
        answers = list(zip(parts, map(session.multi_async, multis), strict=True))
        parts = []
        trouble: LeaderqError | None = None
        for part, answer in answers:
            try:
                error: BaseException | None = answer.exception(patience_s)
            except FutureTimeout:
                error = ConnectionLost(f"no answer within {patience_s:.0f} s")
            if isinstance(error, ConnectionLost | SessionExpired):
                trouble = error
                doubtful.update(part)
                parts.append(part)
                continue
            deadline = now_s() + patience_s
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
    outcome = next(
        (outcome for kind, outcome in _OUTCOMES.items() if isinstance(error, kind)), None
    )
    if outcome is None:
        raise error
    return BulkOutcome.DONE if is_doubtful and outcome is BulkOutcome.GONE else outcome


@dataclass(frozen=True, slots=True)
class Purged:
    """``deleted`` by us; ``held``: left alone, for somebody works on them; ``gone``: taken by
    somebody else meanwhile; ``stuck``: left alone, for they have children.
    """

    deleted: int
    held: int = 0
    gone: int = 0
    stuck: int = 0


def purge(
    session: Session,
    paths: QueuePaths,
    names: Sequence[str],
    *,
    on_progress: Callable[[int], None] | None = None,
    patience_s: float = PATIENCE_S,
) -> Purged:
    """Delete these items, the last ones first: so consumers, who begin at the other end, get in the
    way as late as can be.

    With a lock path what a consumer holds stays. ``on_progress`` is told how many more have been
    dealt with.
    """
    if (lock_path := paths.lock_path) is not None:
        retry_until_connected(session, lambda: session.ensure_path(lock_path), patience_s)
    counts: Counter[BulkOutcome] = Counter()
    groups = (removal(paths, name) for name in reversed(names))
    for outcome in _delete_each(session, groups, patience_s):
        counts[outcome] += 1
        if on_progress is not None:
            on_progress(1)
    return Purged(
        counts[BulkOutcome.DONE],
        counts[BulkOutcome.HELD],
        counts[BulkOutcome.GONE],
        counts[BulkOutcome.STUCK],
    )


def removal(paths: QueuePaths, name: str) -> OperationGroup:
    """The operations that delete an item, unless a consumer holds it: its lock is made and deleted
    in the same transaction, so that nobody ever sees it.
    """
    item = Delete(paths.item(name))
    if paths.lock_path is None:
        return [item]
    lock = paths.lock(name)
    return [Create(lock, ephemeral=True), item, Delete(lock)]


def delete_tree(session: Session, path: str, *, patience_s: float = PATIENCE_S) -> int:
    """Delete a znode with all below it; returns how many that were. What comes meanwhile goes too,
    as long as it does not come faster.

    :raises NotEmpty: it does.
    """
    deleted = 0
    for _ in range(_TREE_ROUNDS):
        try:
            names = retry_until_connected(session, lambda: session.children(path), patience_s)
        except NoNode:
            return deleted
        leaves = ([Delete(join(path, name))] for name in names)
        outcomes = zip(names, _delete_each(session, leaves, patience_s), strict=True)
        for name, outcome in list(outcomes):
            if outcome is BulkOutcome.STUCK:
                deleted += delete_tree(session, join(path, name), patience_s=patience_s)
            else:
                deleted += outcome is BulkOutcome.DONE
        deleted += delete_if_empty(session, path, patience_s)
    raise NotEmpty(f"{path} is written to while it is deleted", path=path)


def delete_if_empty(session: Session, path: str, patience_s: float = PATIENCE_S) -> int:
    """Delete a znode that has no children; returns 1 if that was done."""
    outcome = next(_delete_each(session, [[Delete(path)]], patience_s))
    return int(outcome is BulkOutcome.DONE)
