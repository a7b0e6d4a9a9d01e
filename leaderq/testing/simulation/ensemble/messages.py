"""The messages between a client and a simulated server, and how their parts are encoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, NamedTuple


class Hello(NamedTuple):
    """The first message of a client. With the id 0 it asks for a new session, else it takes one up.

    ``last_zxid`` is the newest transaction that the client has seen: a server that has not seen it
    hangs up.
    """

    session_id: int
    password: bytes
    timeout_s: float
    last_zxid: int = 0


class Connected(NamedTuple):
    """The session is established, with this time-out in seconds."""

    session_id: int
    password: bytes
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Refused:
    """The session does not exist (any more), or the password is wrong; the server hangs up."""


class ServerAnswer(NamedTuple):
    """The answer to one request. ``value`` is what the ``deserialize`` of the request returns."""

    xid: int
    zxid: int
    error_code: int
    value: Any


class ServerEvent(NamedTuple):
    """A watch has fired. ``kind``: 1 created, 2 deleted, 3 changed, 4 children."""

    kind: int
    path: str


@dataclass(frozen=True, slots=True)
class Hungup:
    """The server has closed the connection; nothing follows."""


CREATED: Final = 1
DELETED: Final = 2
CHANGED: Final = 3
CHILDREN: Final = 4


OK: Final = 0


class Code:
    """ZooKeeper's error codes, plain numbers; only those with which these servers answer."""

    RUNTIME_INCONSISTENCY: Final = -2
    MARSHALLING_ERROR: Final = -5
    UNIMPLEMENTED: Final = -6
    BAD_ARGUMENTS: Final = -8
    NO_NODE: Final = -101
    NO_AUTH: Final = -102
    BAD_VERSION: Final = -103
    NO_CHILDREN_FOR_EPHEMERALS: Final = -108
    NODE_EXISTS: Final = -110
    NOT_EMPTY: Final = -111
    SESSION_EXPIRED: Final = -112
    INVALID_ACL: Final = -114
    AUTH_FAILED: Final = -115
    SESSION_MOVED: Final = -118
    NO_WATCHER: Final = -121


class RequestType:
    """The numbers of the requests that these servers know, plain: an enum's take longer to look at
    than the rest of a request.
    """

    CLOSE: Final = -11
    CREATE: Final = 1
    DELETE: Final = 2
    EXISTS: Final = 3
    GET_DATA: Final = 4
    SET_DATA: Final = 5
    GET_ACL: Final = 6
    SET_ACL: Final = 7
    GET_CHILDREN: Final = 8
    SYNC: Final = 9
    PING: Final = 11
    GET_CHILDREN_2: Final = 12
    MULTI: Final = 14
    REMOVE_WATCHES: Final = 18
    MULTI_READ: Final = 22
    AUTH: Final = 100
    ADD_WATCH: Final = 106


class RequestError(Exception):
    """A server refuses a request, or a part of a request, with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code
