from __future__ import annotations

import kazoo.exceptions as theirs
import pytest

from leaderq import errors
from leaderq.zookeeper.translation import NotSent, error_of, translated
from leaderq.zookeeper.wire import Failed


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (theirs.NoNodeError, errors.NoNode),
        (theirs.NodeExistsError, errors.NodeExists),
        (theirs.BadVersionError, errors.BadVersion),
        (theirs.NotEmptyError, errors.NotEmpty),
        (theirs.ConnectionLoss, errors.ConnectionLost),
        (NotSent, errors.NotConnected),
        (theirs.SessionExpiredError, errors.SessionExpired),
        (theirs.ConnectionClosedError, errors.SessionClosed),
        (theirs.SessionMovedError, errors.ConnectionLost),
        (theirs.NoAuthError, errors.NoPermission),
        (theirs.AuthFailedError, errors.AccessRefused),
        (RuntimeError, errors.ZooKeeperError),
    ],
)
def test_each_error_of_kazoo_has_one_of_ours(
    theirs: type[Exception], ours: type[Exception]
) -> None:
    cause = theirs()
    error = translated(cause, "/a/b", 3)
    assert type(error) is ours
    assert error.__cause__ is cause
    assert "/a/b" in str(error)


def test_a_refusal_of_one_znode_is_a_refusal_of_access_with_its_path() -> None:
    error = translated(theirs.NoAuthError(), "/a")
    assert isinstance(error, errors.AccessRefused)
    assert isinstance(error, errors.ZooKeeperError)
    assert error.path == "/a"


def test_nothing_sent_is_also_a_lost_connection() -> None:
    assert issubclass(errors.NotConnected, errors.ConnectionLost)


def test_a_server_that_is_too_old_is_told_the_version_that_is_needed() -> None:
    """Persistent watches and multiRead came with 3.6."""
    assert "3.6 or newer" in str(translated(theirs.UnimplementedError()))


def test_our_own_errors_pass_unchanged() -> None:
    error = errors.NoNode("x")
    assert translated(error) is error


def test_a_code_in_a_multi_becomes_its_error_with_path_and_index() -> None:
    error = error_of(Failed(-110), "/a", 2)
    assert isinstance(error, errors.NodeExists)
    assert (error.path, error.index) == ("/a", 2)
