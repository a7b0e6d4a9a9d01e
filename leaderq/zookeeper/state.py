"""The words for where a session stands: its state, and the secret by which it can be taken up again."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field


class SessionState(enum.Enum):
    """Where a :class:`~leaderq.zookeeper.Session` stands.

    ``CONNECTED`` proves only that a server answered once: it is not proof of leadership, nor that the next request arrives.
    """

    CONNECTED = "connected"
    """A server answers, or did until now."""
    SUSPENDED = "suspended"
    """No connection. The session may live on at the servers: its ephemeral znodes stand until they expire it."""
    LOST = "lost"
    """This session id is over. The next ``CONNECTED`` is a new session with a new id and none of the old ephemerals."""
    CLOSED = "closed"
    """Closed by its owner, for good."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What another process needs to take up a session and end it (see :func:`~leaderq.zookeeper.end_session`).

    ``password`` is a secret: hand it over a pipe, never on a command line, in a log or on disk. It is not in the repr.
    """

    session_id: int
    password: bytes = field(repr=False)
