"""Which exit code an error ends a command with."""

from __future__ import annotations

from leaderq.errors import (
    AccessRefused,
    CommandFailed,
    ConfigurationError,
    ConnectionLost,
    LeaderqError,
    MissingPiece,
    ServersUnreachable,
    SessionExpired,
    UnknownTopic,
)
from leaderq.exits import ExitCode

_UNREACHABLE = (ServersUnreachable, ConnectionLost, SessionExpired)
_USAGE = (ConfigurationError, AccessRefused, MissingPiece, UnknownTopic)


def exit_code(error: LeaderqError) -> int:
    """The exit code of a command that ends with ``error``."""
    if isinstance(error, CommandFailed):
        return error.exit_code
    if isinstance(error, _UNREACHABLE):
        return ExitCode.UNREACHABLE
    return ExitCode.USAGE if isinstance(error, _USAGE) else ExitCode.FAILED
