"""Our side of a queue that Java shares: recipe classes by their kind, and what a consumer of theirs
saw.
"""

from __future__ import annotations

from typing import Any

from leaderq import Session
from leaderq.queues import (
    DistributedDelayQueue,
    DistributedIdQueue,
    DistributedPriorityQueue,
    DistributedQueue,
)
from leaderq.queues.wire.names import QueueKind
from leaderq.testing import eventually

RECIPES: dict[QueueKind, Any] = {
    QueueKind.PLAIN: DistributedQueue,
    QueueKind.ID: DistributedIdQueue,
    QueueKind.PRIORITY: DistributedPriorityQueue,
    QueueKind.DELAY: DistributedDelayQueue,
}
PAST_S = 1_700_000_000


def recipe(kind: QueueKind, session: Session, path: str, **options: Any) -> Any:
    """A queue of ours, to be used in a ``with`` block."""
    return RECIPES[kind](session, path, **options)


def put(queue: Any, value: Any, rank: int, *, is_multi: bool = False) -> None:
    """Put with a rank: the lower the sooner, in queues that have an order of their own; the id in
    those that have ids.
    """
    how: dict[QueueKind, dict[str, Any]] = {
        QueueKind.ID: {"id": f"i/d|{rank}"},
        QueueKind.PRIORITY: {"priority": rank},
        QueueKind.DELAY: {"due": PAST_S + rank},
    }
    (queue.put_multi if is_multi else queue.put)(value, **how.get(queue.KIND, {}))


def java_how(kind: QueueKind, rank: int) -> Any:
    """The same rank as Java's ``put`` takes it."""
    return {
        QueueKind.ID: f"i/d|{rank}",
        QueueKind.PRIORITY: rank,
        QueueKind.DELAY: (PAST_S + rank) * 1000,
    }.get(kind, "")


class Seen:
    """A consumer that keeps what it was given."""

    def __init__(self) -> None:
        self.values: list[bytes] = []

    def __call__(self, value: bytes) -> None:
        self.values.append(value)

    def await_items(self, count: int) -> list[bytes]:
        """What was consumed, once there are ``count``."""
        eventually(lambda: len(self.values) >= count)
        return list(self.values)
