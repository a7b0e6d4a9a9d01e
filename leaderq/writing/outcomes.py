"""Groups of operations sent through a writer together, and what became of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from leaderq.errors import (
    BadVersion,
    ConnectionLost,
    LeaderqError,
    NodeExists,
    NoNode,
    NotConnected,
)
from leaderq.retrying import PATIENCE_S
from leaderq.threads import primitives
from leaderq.writing.groups import OperationGroup, estimated_bytes, validated
from leaderq.writing.writer import SequencedWriter
from leaderq.zookeeper import Operation

OVERTAKEN = (BadVersion, NoNode, NodeExists)
"""What the servers say of a transition from a state that is not that of the znode any more."""
Outcome = tuple[list[Any] | None, LeaderqError | None]
"""The results (``None`` if the answer was lost), or why it was not applied."""


class _Awaited(OperationGroup):
    """A future for each, with its lock, would cost a quarter of a call."""

    __slots__ = ("heard", "outcome")

    def __init__(
        self, operations: Sequence[Operation], size: int, heard: Callable[[], object]
    ) -> None:
        super().__init__(operations, size)
        self.heard = heard
        self.outcome: Outcome | None = None

    def on_outcome(self, results: list[Any] | None, error: LeaderqError | None) -> None:
        self.outcome = results, error
        self.heard()


def outcomes(
    writer: SequencedWriter,
    groups: Sequence[Sequence[Operation]],
    path: str,
    timeout_s: float = PATIENCE_S,
) -> list[Outcome]:
    """Write these, each all or nothing.

    Once nothing has been answered for ``timeout_s`` seconds, the rest is ``NotConnected`` if it was
    certainly not sent, else ``ConnectionLost``.

    :raises ConfigurationError: an operation of the user's has a path that ZooKeeper cannot use.
    """
    ours = f"{path}/"
    validated([op for group in groups for op in group if not op.path.startswith(ours)])
    answered: list[None] = []
    all_answered = primitives.Event()

    def heard() -> None:
        answered.append(None)  # atomic: the session's thread may tell, and the writer's
        if len(answered) == len(groups):
            all_answered.set()

    made = [_Awaited(one, estimated_bytes(one, writer.chroot_bytes), heard) for one in groups]
    writer.send(made)
    seen = 0
    unsent: set[OperationGroup] = set()
    while made and not all_answered.wait(timeout_s):
        if seen == len(answered):
            unsent.update(writer.withdraw_those(set(made).__contains__))
            break
        seen = len(answered)
    not_sent = NotConnected("no connection in time: it was not sent", path=path)
    lost = ConnectionLost("no answer in time: the outcome is unknown", path=path)
    return [one.outcome or (None, not_sent if one in unsent else lost) for one in made]
