"""Transitions sent through an idempotent writer, and what became of each."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from leaderq.dyno.transitions import Operations, without_missing
from leaderq.errors import (
    BadVersion,
    ConnectionLost,
    LeaderqError,
    NodeExists,
    NoNode,
    NotConnected,
    ZooKeeperError,
)
from leaderq.writing import SequencedWriter
from leaderq.writing.groups import OperationGroup, estimated_bytes, validated

OVERTAKEN = (BadVersion, NoNode, NodeExists)
"""What the servers say of a transition from a state that is not that of the message any more."""
ANSWER_S = 30.0
"""How long an answer is waited for, as long as none comes."""
Outcome = tuple[list[Any] | None, LeaderqError | None]
"""The results (``None`` if the answer was lost), or why it was not applied."""


class _Awaited(OperationGroup):
    """A future for each, with its lock, would cost a quarter of a call."""

    __slots__ = ("heard", "outcome")

    def __init__(self, operations: Operations, size: int, heard: Callable[[], object]) -> None:
        super().__init__(operations, size)
        self.heard = heard
        self.outcome: Outcome | None = None

    def on_outcome(self, results: list[Any] | None, error: LeaderqError | None) -> None:
        self.outcome = results, error
        self.heard()


def outcomes(
    writer: SequencedWriter, groups: Sequence[Operations], path: str, timeout_s: float = ANSWER_S
) -> list[Outcome]:
    """Write these, each all or nothing. Once nothing has been answered for ``timeout_s`` seconds,
    what is left is ``NotConnected`` if it was surely not sent, else ``ConnectionLost``.

    :raises ConfigurationError: an operation of the user's has a path that ZooKeeper cannot use.
    """
    ours = f"{path}/"
    validated([op for group in groups for op in group if not op.path.startswith(ours)])
    answered: list[None] = []
    all_answered = threading.Event()

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


def apply_all(
    writer: SequencedWriter, groups: Sequence[Operations], path: str
) -> list[LeaderqError | None]:
    """Write these, each all or nothing; for each its error, or ``None``. What goes beside a message
    (its id, the marker of its rest) is left out if it was taken away by hand, or nobody could ever
    settle that message."""
    errors = [error for _, error in outcomes(writer, groups, path)]
    for at, group in enumerate(groups):
        while (error := errors[at]) is not None and within(error, path):
            fewer = without_missing(group, error)
            if fewer is None:
                break
            group = fewer
            errors[at] = outcomes(writer, [group], path)[0][1]
    return errors


def within(error: LeaderqError, path: str) -> bool:
    """Whether it is about a znode below ``path``, and not about one of the user's own."""
    return isinstance(error, ZooKeeperError) and (error.path or "").startswith(f"{path}/")
