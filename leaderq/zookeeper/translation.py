"""kazoo's exceptions in leaderq's words: no exception of kazoo leaves this package."""

from __future__ import annotations

import kazoo.exceptions as theirs

from leaderq.errors import (
    AccessRefused,
    BadVersion,
    ConnectionLost,
    LeaderqError,
    NodeExists,
    NoNode,
    NoPermission,
    NotConnected,
    NotEmpty,
    SessionClosed,
    SessionExpired,
    ZooKeeperError,
)
from leaderq.zookeeper.wire import Failed


class NotSent(Exception):
    """Given to a request that was refused before it was sent, because there is no connection."""


_UNKNOWN = "the outcome is unknown"
_TOO_SLOW = f"the server gave up on the request: {_UNKNOWN}"
# Subclasses stand before their parents: ConnectionClosedError is a SessionExpiredError to kazoo.
_TABLE: tuple[tuple[type[BaseException], type[ZooKeeperError], str], ...] = (
    (NotSent, NotConnected, "the request was not sent: the session has no connection now"),
    (theirs.ConnectionClosedError, SessionClosed, "the session is closed"),
    (theirs.NoNodeError, NoNode, "no such znode"),
    (theirs.NodeExistsError, NodeExists, "the znode exists already"),
    (theirs.BadVersionError, BadVersion, "the znode has another version: someone wrote first"),
    (theirs.NotEmptyError, NotEmpty, "the znode has children"),
    (theirs.SessionExpiredError, SessionExpired, "the session is over"),
    (theirs.SessionMovedError, ConnectionLost, "the session was taken up through another server"),
    (theirs.ConnectionLoss, ConnectionLost, f"the connection broke before the answer: {_UNKNOWN}"),
    (theirs.OperationTimeoutError, ConnectionLost, _TOO_SLOW),
    (theirs.RequestTimeoutError, ConnectionLost, _TOO_SLOW),
    (theirs.NoAuthError, NoPermission, "these credentials may not do that; check the znode's ACL"),
    (theirs.InvalidACLError, NoPermission, "ACL refused: the session has not authenticated"),
    (theirs.NoChildrenForEphemeralsError, ZooKeeperError, "ephemeral znodes have no children"),
    (theirs.UnimplementedError, ZooKeeperError, "the server is too old; it must be 3.6 or newer"),
    (theirs.QuotaExceededError, ZooKeeperError, "the znode's quota is used up"),
)
_REFUSED = (theirs.AuthFailedError, theirs.SessionClosedRequireSaslError)


def translated(exc: BaseException, path: str | None = None, index: int | None = None) -> LeaderqError:
    """Return the leaderq error that ``exc`` means, with ``exc`` as its cause."""
    error = _translated(exc, path, index)
    if error is not exc:
        error.__cause__ = exc
    return error


def error_of(failed: Failed, path: str | None, index: int | None = None) -> LeaderqError:
    """Return the error of one operation of a multi or multiRead."""
    return translated(theirs.EXCEPTIONS[failed.code](), path, index)


def _translated(exc: BaseException, path: str | None, index: int | None) -> LeaderqError:
    if isinstance(exc, LeaderqError):
        return exc
    operation = "" if index is None else f", operation {index} of the multi"
    place = "" if path is None else f" ({path}{operation})"
    for kind, ours, sentence in _TABLE:
        if isinstance(exc, kind):
            return ours(sentence + place, path=path, index=index)
    if isinstance(exc, _REFUSED):
        what = f"ZooKeeper refused the credentials of this session{place}"
        return AccessRefused(f"{what}; check user, password and mechanism")
    details = f": {exc}" if str(exc) else ""
    sentence = f"ZooKeeper answered {type(exc).__name__}{details}{place}"
    return ZooKeeperError(sentence, path=path, index=index)
