"""Turns kazoo's exceptions into leaderq's: no exception of kazoo leaves this package."""

from __future__ import annotations

import kazoo.exceptions as theirs

import leaderq.errors as ours
from leaderq.errors import LeaderqError
from leaderq.zookeeper.wire import Failed


class NotSent(Exception):
    """The request was refused before it was sent, because there is no connection."""


_REFUSED = (theirs.AuthFailedError, theirs.SessionClosedRequireSaslError)
_TIMEOUTS = (theirs.OperationTimeoutError, theirs.RequestTimeoutError)
_UNKNOWN = "the outcome is unknown"
_LOST, _OTHER, _DENIED = ours.ConnectionLost, ours.ZooKeeperError, ours.NoPermission
_Kind = type[BaseException] | tuple[type[BaseException], ...]
# Subclasses stand before their parents: ConnectionClosedError is a SessionExpiredError to kazoo.
_TABLE: tuple[tuple[_Kind, type[ours.ZooKeeperError], str], ...] = (
    (NotSent, ours.NotConnected, "the request was not sent: the session has no connection now"),
    (theirs.ConnectionClosedError, ours.SessionClosed, "the session is closed"),
    (theirs.NoNodeError, ours.NoNode, "no such znode"),
    (theirs.NodeExistsError, ours.NodeExists, "the znode exists already"),
    (theirs.BadVersionError, ours.BadVersion, "the znode has another version: someone wrote first"),
    (theirs.NotEmptyError, ours.NotEmpty, "the znode has children"),
    (theirs.SessionExpiredError, ours.SessionExpired, "the session is over"),
    (theirs.SessionMovedError, _LOST, "the session was taken up through another server"),
    (theirs.ConnectionLoss, _LOST, f"the connection broke before the answer: {_UNKNOWN}"),
    (_TIMEOUTS, _LOST, f"the server gave up on the request: {_UNKNOWN}"),
    (theirs.NoAuthError, _DENIED, "these credentials may not do that; check the znode's ACL"),
    (theirs.InvalidACLError, _DENIED, "ACL refused: the session has not authenticated"),
    (theirs.NoChildrenForEphemeralsError, _OTHER, "ephemeral znodes have no children"),
    (theirs.UnimplementedError, _OTHER, "this ZooKeeper is too old; it must be 3.6 or newer"),
    (theirs.QuotaExceededError, _OTHER, "the znode's quota is used up"),
)


def translated(
    exc: BaseException, path: str | None = None, index: int | None = None
) -> LeaderqError:
    """Return the leaderq error for kazoo's error ``exc``, with ``exc`` as its cause."""
    if isinstance(exc, LeaderqError):
        return exc
    operation = "" if index is None else f", operation {index} of the multi"
    place = "" if path is None else f" ({path}{operation})"
    error: LeaderqError
    for kind, our_kind, sentence in _TABLE:
        if isinstance(exc, kind):
            error = our_kind(sentence + place, path=path, index=index)
            break
    else:
        if isinstance(exc, _REFUSED):
            what = f"ZooKeeper refused the credentials of this session{place}"
            error = ours.AccessRefused(f"{what}; check user, password and mechanism")
        else:
            details = f": {exc}" if str(exc) else ""
            sentence = f"ZooKeeper answered {type(exc).__name__}{details}{place}"
            error = ours.ZooKeeperError(sentence, path=path, index=index)
    error.__cause__ = exc
    return error


def error_of(failed: Failed, path: str | None, index: int | None = None) -> LeaderqError:
    return translated(theirs.EXCEPTIONS[failed.code](), path, index)
