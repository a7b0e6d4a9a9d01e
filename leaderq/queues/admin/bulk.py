"""Many small transactions, each of which takes away what it is about, and so cannot be applied
twice.

A lost answer is then no reason for doubt about the znodes, only about whose hand it was: the
transaction is sent again, and finds its znode gone. That is counted as done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from leaderq.clock import now_s
from leaderq.errors import BadVersion, ConnectionLost, LeaderqError, NodeExists, NoNode, NotEmpty, SessionExpired
from leaderq.queues.connected import PATIENCE_S, await_connection, retry_until_connected
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.queues.writing.groups import MULTI_BYTES, MULTI_OPS
from leaderq.zookeeper import Create, Delete, Operation, Session, SetData
from leaderq.zookeeper.paths import join, parent_of

_TREE_ROUNDS = 5
_GROUPS = 2000
_BYTES = 4 << 20

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


_OUTCOMES: tuple[tuple[type[LeaderqError], BulkOutcome], ...] = (
    (NoNode, BulkOutcome.GONE),
    (BadVersion, BulkOutcome.GONE),
    (NodeExists, BulkOutcome.HELD),
    (NotEmpty, BulkOutcome.STUCK),
)


def apply_each(
    session: Session, groups: Iterable[OperationGroup], *, patience_s: float = PATIENCE_S
) -> Iterator[BulkOutcome]:
    """Apply each group, all or none of it, and tell what became of it, in their order.

    Each must delete the znode that it is about. Some thousands of groups, or some megabytes, are in
    hand at a time; stop asking, and nothing more is sent. Missing parents of what is created are
    made.

    :raises ConnectionLost: for ``patience_s`` nothing was answered; what was not told yet may or
        may not have been done.
    """
    for chunk in _chunks(groups):
        yield from _applied(session, chunk, patience_s)


def _applied(session: Session, groups: list[OperationGroup], patience_s: float) -> list[BulkOutcome]:
    outcomes: dict[int, BulkOutcome] = {}
    doubtful: set[int] = set()
    left = list(range(len(groups)))
    deadline = now_s() + patience_s
    while left:
        results = session.multi_batches(
            [groups[at] for at in left], max_ops=MULTI_OPS, max_bytes=MULTI_BYTES, timeout_s=patience_s
        )
        again: list[int] = []
        trouble: LeaderqError | None = None
        for at, result in zip(left, results, strict=True):
            if isinstance(result, ConnectionLost | SessionExpired):
                trouble = result
                doubtful.add(at)
                again.append(at)
            elif _repaired(session, groups[at], result, patience_s):
                again.append(at)
            else:
                outcomes[at] = _outcome(result, at in doubtful)
        if len(again) < len(left):
            deadline = now_s() + patience_s
        elif now_s() >= deadline:
            raise trouble or ConnectionLost("the parents of what is created vanish again and again")
        if trouble is not None:
            await_connection(session, deadline)
        left = again
    return [outcomes[at] for at in range(len(groups))]


def _outcome(result: list[Any] | LeaderqError, is_doubtful: bool) -> BulkOutcome:
    if not isinstance(result, LeaderqError):
        return BulkOutcome.DONE
    for kind, outcome in _OUTCOMES:
        if isinstance(result, kind):
            return BulkOutcome.DONE if is_doubtful and outcome is BulkOutcome.GONE else outcome
    raise result


def _repaired(session: Session, group: OperationGroup, result: list[Any] | LeaderqError, patience_s: float) -> bool:
    """Whether the group failed for want of a parent, which is there now."""
    if not isinstance(result, NoNode) or result.index is None or not isinstance(op := group[result.index], Create):
        return False
    retry_until_connected(session, lambda: session.ensure_path(parent_of(op.path)), patience_s)
    return True


def _chunks(groups: Iterable[OperationGroup]) -> Iterator[list[OperationGroup]]:
    chunk: list[OperationGroup] = []
    size = 0
    for group in groups:
        chunk.append(group)
        size += sum(len(op.data) for op in group if isinstance(op, Create | SetData))
        if len(chunk) >= _GROUPS or size >= _BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk


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
    held_too: bool = False,
    on_progress: Callable[[int], None] | None = None,
    patience_s: float = PATIENCE_S,
) -> Purged:
    """Delete these items, the last ones first: so consumers, who begin at the other end, get in the
    way as late as can be.

    With a lock path each is deleted under its own lock, in one transaction, so that an item which a
    consumer holds stays; not so with ``held_too``: then that consumer's acknowledgement will fail.
    ``on_progress`` is told how many more have been dealt with.
    """
    guard = paths.lock_path is not None and not held_too
    counts: Counter[BulkOutcome] = Counter()
    for outcome in apply_each(session, (_group(paths, name, guard) for name in reversed(names)), patience_s=patience_s):
        counts[outcome] += 1
        if on_progress is not None:
            on_progress(1)
    return Purged(counts[BulkOutcome.DONE], counts[BulkOutcome.HELD], counts[BulkOutcome.GONE], counts[BulkOutcome.STUCK])


def _group(paths: QueuePaths, name: str, guard: bool) -> OperationGroup:
    item = Delete(paths.item(name))
    if not guard:
        return [item]
    lock = paths.lock(name)
    return [Create(lock, ephemeral=True), item, Delete(lock)]


def delete_tree(session: Session, path: str, *, patience_s: float = PATIENCE_S) -> int:
    """Delete a znode with all below it; returns how many that were. What comes meanwhile goes too, as
    long as it does not come faster.

    :raises NotEmpty: it does.
    """
    deleted = 0
    for _ in range(_TREE_ROUNDS):
        try:
            names = retry_until_connected(session, lambda: session.children(path), patience_s)
        except NoNode:
            return deleted
        leaves = ([Delete(join(path, name))] for name in names)
        outcomes = zip(names, apply_each(session, leaves, patience_s=patience_s), strict=True)
        for name, outcome in list(outcomes):
            if outcome is BulkOutcome.STUCK:
                deleted += delete_tree(session, join(path, name), patience_s=patience_s)
            else:
                deleted += outcome is BulkOutcome.DONE
        deleted += delete_if_empty(session, path, patience_s)
    raise NotEmpty(f"{path} is written to while it is deleted", path=path)


def delete_if_empty(session: Session, path: str, patience_s: float = PATIENCE_S) -> int:
    """Delete a znode that has no children; returns 1 if that was done."""
    outcome = next(iter(apply_each(session, [[Delete(path)]], patience_s=patience_s)))
    return int(outcome is BulkOutcome.DONE)
