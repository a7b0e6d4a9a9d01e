"""Reads where a tally stands, and takes it away."""

from __future__ import annotations

import logging
import threading

from leaderq.clock import now_s
from leaderq.errors import ConnectionLost, LeaderqError, NoNode
from leaderq.zookeeper import Session, SessionState, Stat
from leaderq.zookeeper.paths import parent_of

log = logging.getLogger(__name__)
_LEAST_S = 0.1


def standing(session: Session, path: str, *, remake: bytes | None) -> Stat | None:
    """The tally's metadata, not older than this call; ``None`` if it is not there.

    With ``remake`` it is made again then, with that data: its ``czxid`` tells that it is another one.

    :raises ZooKeeperError: it cannot be read for now; asking again is harmless.
    """
    session.sync(path)
    stat = session.exists(path)
    if stat is None and remake is not None:
        session.ensure_path(parent_of(path))
        session.create(path, remake)
        stat = session.get(path)[1]
    return stat


def take_away(session: Session, path: str, deadline: float) -> None:
    """Delete it, and again if the reply is lost, until ``deadline``; one that cannot be deleted is swept some day."""
    while session.state is not SessionState.CLOSED:
        left_s = max(_LEAST_S, deadline - now_s())
        try:
            session.delete(path, timeout_s=left_s)
            return
        except NoNode:
            return
        except LeaderqError as exc:
            if now_s() >= deadline or not isinstance(exc, ConnectionLost):
                break
        threading.Event().wait(min(_LEAST_S, left_s) / 2)
    log.debug("%s is left behind", path)
