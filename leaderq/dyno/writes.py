"""Transitions sent through an idempotent writer, and what became of each."""

from __future__ import annotations

from collections.abc import Sequence

from leaderq.dyno.transitions import Operations, without_missing
from leaderq.errors import BadVersion, LeaderqError, NodeExists, NoNode, ZooKeeperError
from leaderq.writing import SequencedWriter
from leaderq.writing.outcomes import outcomes

OVERTAKEN = (BadVersion, NoNode, NodeExists)
"""What the servers say of a transition from a state that is not that of the message any more."""


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
