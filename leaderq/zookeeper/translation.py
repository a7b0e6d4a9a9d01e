"""kazoo's exceptions in leaderq's words. No kazoo exception passes this door."""

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
    """Given to a request that was refused before it was sent, for there is no connection."""


# Subclasses stand before their parents: ConnectionClosedError is a SessionExpiredError to kazoo.
_TABLE: tuple[tuple[type[BaseException], type[ZooKeeperError], str], ...] = (
    (NotSent, NotConnected, "the request was not sent: the session has no connection at the moment"),
    (theirs.ConnectionClosedError, SessionClosed, "the session is closed"),
    (theirs.NoNodeError, NoNode, "no such znode"),
    (theirs.NodeExistsError, NodeExists, "the znode exists already"),
    (theirs.BadVersionError, BadVersion, "the znode has another version: someone wrote first"),
    (theirs.NotEmptyError, NotEmpty, "the znode has children"),
    (theirs.SessionExpiredError, SessionExpired, "the session is over"),
    (
        theirs.SessionMovedError,
        ConnectionLost,
        "the session was taken up through another server; this connection is refused",
    ),
    (theirs.ConnectionLoss, ConnectionLost, "the connection broke before the answer came: the outcome is unknown"),
    (theirs.OperationTimeoutError, ConnectionLost, "the server gave up on the request: the outcome is unknown"),
    (theirs.RequestTimeoutError, ConnectionLost, "the server gave up on the request: the outcome is unknown"),
    (theirs.NoAuthError, NoPermission, "these credentials may not do that; check the znode's ACL and the user given"),
    (theirs.InvalidACLError, NoPermission, "ZooKeeper refuses the ACL: this session has not authenticated as anyone"),
    (theirs.NoChildrenForEphemeralsError, ZooKeeperError, "an ephemeral znode cannot have children"),
    (theirs.UnimplementedError, ZooKeeperError, "this ZooKeeper server does not know the request; 3.9 or newer is needed"),
    (theirs.QuotaExceededError, ZooKeeperError, "the znode's quota is used up"),
)
_REFUSED = (theirs.AuthFailedError, theirs.SessionClosedRequireSaslError)


def translated(exc: BaseException, path: str | None = None, index: int | None = None) -> LeaderqError:
    """The leaderq error that ``exc`` means, with ``exc`` as its cause."""
    error = _translated(exc, path, index)
    if error is not exc:
        error.__cause__ = exc
    return error


def error_of(failed: Failed, path: str | None, index: int | None = None) -> LeaderqError:
    """The error of one operation of a multi or multiRead."""
    return translated(theirs.EXCEPTIONS[failed.code](), path, index)


def _translated(exc: BaseException, path: str | None, index: int | None) -> LeaderqError:
    if isinstance(exc, LeaderqError):
        return exc
    place = "" if path is None else f" ({path}" + ("" if index is None else f", operation {index} of the multi") + ")"
    for kind, ours, sentence in _TABLE:
        if isinstance(exc, kind):
            return ours(sentence + place, path=path, index=index)
    if isinstance(exc, _REFUSED):
        return AccessRefused(f"ZooKeeper refused the credentials of this session{place}; check user, password and mechanism")
    return ZooKeeperError(
        f"ZooKeeper answered {type(exc).__name__}{f': {exc}' if str(exc) else ''}{place}", path=path, index=index
    )
