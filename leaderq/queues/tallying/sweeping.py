"""Takes away the tallies of producers that were killed."""

from __future__ import annotations

import logging

from leaderq.errors import LeaderqError
from leaderq.zookeeper import Delete, GetData, Session, Stat
from leaderq.zookeeper.paths import join

log = logging.getLogger(__name__)

OLD_S = 24 * 3600.0
_AT_A_TIME = 500
_LIMIT = 5000


def sweep(session: Session, parent: str, *, old_s: float = OLD_S) -> int:
    """Delete the tallies below ``parent`` that were not written for ``old_s`` by the servers' clock; gives how many.

    Safe for the living too: the next write of an owner that was idle makes its tally again. Only what has been in doubt for all that
    time, its sender having had no connection, fails as unknown then. Each is deleted at the version seen, so one in use stays.
    Errors are logged at level debug: there will be another start.
    """
    try:
        found = _stats(session, parent)
        newest_ms = max((stat.mtime_ms for stat in found.values()), default=0)  # the sweeper's own: the time of the servers
        old = [
            Delete(path, stat.version)
            for path, stat in found.items()
            if stat.ephemeral_owner == 0 and newest_ms - stat.mtime_ms > old_s * 1000
        ]
        outcomes = session.multi_batches([[one] for one in old]) if old else []
    except LeaderqError as exc:
        log.debug("the tallies below %s were not swept: %s", parent, exc)
        return 0
    return sum(not isinstance(one, LeaderqError) for one in outcomes)


def _stats(session: Session, parent: str) -> dict[str, Stat]:
    paths = [join(parent, name) for name in session.children(parent)[:_LIMIT]]
    found: dict[str, Stat] = {}
    for begin in range(0, len(paths), _AT_A_TIME):
        some = paths[begin : begin + _AT_A_TIME]
        for path, answer in zip(some, session.multi_read([GetData(path) for path in some]), strict=True):
            if isinstance(answer, tuple):
                found[path] = answer[1]
    return found
