"""Requests that may be asked again, asked until they are answered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from leaderq.clock import now_s
from leaderq.errors import ConnectionLost, NoPermission, SessionExpired
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.zookeeper import Session, SessionState

T = TypeVar("T")

PATIENCE_S = 30.0
"""How long an operator's request outlasts an outage."""
_LOOK_S = 0.5
_REST_S = 0.05


def retry_until_connected(session: Session, ask: Callable[[], T], patience_s: float = PATIENCE_S) -> T:
    """What ``ask`` returns, asked again while the connection is away; it must do no harm when it is
    asked twice.

    :raises ConnectionLost: there was no answer in ``patience_s``.
    """
    deadline = now_s() + patience_s
    while True:
        try:
            return ask()
        except (ConnectionLost, SessionExpired):
            if now_s() >= deadline:
                raise
            await_connection(session, deadline)


def await_connection(session: Session, deadline: float) -> None:
    """Return when there seems to be a connection, when the session is closed, or at the deadline;
    never at once.
    """
    woken = threading.Event()

    def on_state(_state: SessionState) -> None:
        woken.set()

    session.add_listener(on_state)
    try:
        woken.wait(_REST_S)
        while session.state in (SessionState.SUSPENDED, SessionState.LOST) and (left_s := deadline - now_s()) > 0:
            woken.clear()
            woken.wait(min(_LOOK_S, left_s))
    finally:
        session.remove_listener(on_state)


@contextmanager
def explaining_refusals(paths: QueuePaths) -> Iterator[None]:
    """Say why znodes beside the queue are needed, if the credentials do not allow for them."""
    try:
        yield
    except NoPermission as exc:
        if exc.path is None or not exc.path.startswith(paths.meta) or paths.meta_path is not None:
            raise
        why = "the queue keeps its side data beside its path, because a Java consumer would complain of it below"
        remedy = "give meta_path= a path where these credentials may create znodes, the same to all its processes"
        raise NoPermission(f"{exc}; {why}; {remedy}", path=exc.path) from exc
