"""Many small transactions, each of which takes away what it is about, and so cannot be applied twice.

A lost answer is then no reason for doubt about the znodes, only about whose hand it was: the transaction is sent again, and finds
its znode gone. That is counted as done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from typing import Any

from leaderq.clock import now_s
from leaderq.errors import BadVersion, ConnectionLost, LeaderqError, NodeExists, NoNode, NotEmpty, SessionExpired
from leaderq.queues.keeping.perseverance import PATIENCE_S, answered, await_connection
from leaderq.zookeeper import Create, Operation, Session, SetData
from leaderq.zookeeper.paths import parent_of

_GROUPS = 2000
_BYTES = 8 << 20

Group = Sequence[Operation]


class Outcome(Enum):
    """What became of a group."""

    DONE = "done"
    GONE = "gone"
    """Somebody took it, or changed it, first: nothing was done."""
    HELD = "held"
    """Somebody works on it: nothing was done."""
    STUCK = "stuck"
    """It has children, which no item has: nothing was done."""


_OUTCOMES: tuple[tuple[type[LeaderqError], Outcome], ...] = (
    (NoNode, Outcome.GONE),
    (BadVersion, Outcome.GONE),
    (NodeExists, Outcome.HELD),
    (NotEmpty, Outcome.STUCK),
)


def apply_each(session: Session, groups: Iterable[Group], *, patience_s: float = PATIENCE_S) -> Iterator[Outcome]:
    """Apply each group, all or none of it, and tell what became of it, in their order.

    Each must delete the znode that it is about. Some thousands of groups, or some megabytes, are in hand at a time; stop asking, and
    nothing more is sent. Missing parents of what is created are made.

    :raises ConnectionLost: for ``patience_s`` nothing was answered; what was not told yet may or may not have been done.
    """
    for chunk in _chunks(groups):
        yield from _applied(session, chunk, patience_s)


def _applied(session: Session, groups: list[Group], patience_s: float) -> list[Outcome]:
    outcomes: dict[int, Outcome] = {}
    doubtful: set[int] = set()
    left = list(range(len(groups)))
    deadline = now_s() + patience_s
    while left:
        results = session.multi_batches([groups[at] for at in left], timeout_s=patience_s)
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


def _outcome(result: list[Any] | LeaderqError, is_doubtful: bool) -> Outcome:
    if not isinstance(result, LeaderqError):
        return Outcome.DONE
    for kind, outcome in _OUTCOMES:
        if isinstance(result, kind):
            return Outcome.DONE if is_doubtful and outcome is Outcome.GONE else outcome
    raise result


def _repaired(session: Session, group: Group, result: list[Any] | LeaderqError, patience_s: float) -> bool:
    """Whether the group failed for want of a parent, which is there now."""
    if not isinstance(result, NoNode) or result.index is None or not isinstance(op := group[result.index], Create):
        return False
    answered(session, lambda: session.ensure_path(parent_of(op.path)), patience_s)
    return True


def _chunks(groups: Iterable[Group]) -> Iterator[list[Group]]:
    chunk: list[Group] = []
    size = 0
    for group in groups:
        chunk.append(group)
        size += sum(len(op.data) for op in group if isinstance(op, Create | SetData))
        if len(chunk) >= _GROUPS or size >= _BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
