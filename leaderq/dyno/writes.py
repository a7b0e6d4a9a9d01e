"""Transitions sent through an idempotent writer, and what became of each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any

from leaderq.dyno.transitions import Operations, without_missing
from leaderq.errors import ConnectionLost, LeaderqError, NotConnected, ZooKeeperError
from leaderq.writing import SequencedWriter

ANSWER_S = 30.0
"""How long an answer is waited for, as long as none comes."""


def outcomes(futures: Iterable[Future[Any]], path: str, timeout_s: float = ANSWER_S) -> list[LeaderqError | None]:
    """What each failed with, if it did. Once one has not been answered in ``timeout_s`` seconds, no
    further one is waited for: it is ``NotConnected`` if it was surely not sent, else
    ``ConnectionLost``."""
    errors: list[LeaderqError | None] = []
    for future in futures:
        try:
            error = future.exception(timeout_s)
        except FutureTimeout:
            timeout_s = 0.0
            if future.cancel():
                error = NotConnected("no connection in time: it was not sent", path=path)
            else:
                error = ConnectionLost("no answer in time: the outcome is unknown", path=path)
        if error is not None and not isinstance(error, LeaderqError):
            raise error
        errors.append(error)
    return errors


def apply_all(writer: SequencedWriter, groups: Sequence[Operations], path: str) -> list[LeaderqError | None]:
    """Write these, each all or nothing; for each its error, or ``None``.

    What goes beside a message (its id, the marker of its rest) may have been taken away by hand:
    then it is left out, or nobody could ever settle that message.
    """
    errors = outcomes(writer.submit_all(groups), path)
    for at, group in enumerate(groups):
        while (error := errors[at]) is not None and within(error, path):
            fewer = without_missing(group, error)
            if fewer is None:
                break
            group = fewer
            errors[at : at + 1] = outcomes([writer.submit(group)], path)
    return errors


def within(error: LeaderqError, path: str) -> bool:
    """Whether it is about a znode below ``path``, and not about one of the user's own."""
    return isinstance(error, ZooKeeperError) and error.path is not None and error.path.startswith(f"{path}/")


def apply(writer: SequencedWriter, operations: Operations, path: str) -> LeaderqError | None:
    """As :func:`apply_all`, for one."""
    return apply_all(writer, [operations], path)[0]
