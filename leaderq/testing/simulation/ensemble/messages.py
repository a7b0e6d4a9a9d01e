"""The messages between a client and a simulated server, and how their parts are encoded."""

from __future__ import annotations

import enum
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


class Code(enum.IntEnum):
    """ZooKeeper's error codes; only those with which these servers answer."""

    RUNTIME_INCONSISTENCY = -2
    MARSHALLING_ERROR = -5
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    NO_AUTH = -102
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112
    INVALID_ACL = -114
    AUTH_FAILED = -115
    SESSION_MOVED = -118
    NO_WATCHER = -121


class RequestType(enum.IntEnum):
    """The numbers of the requests that these servers know."""

    CLOSE = -11
    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN_2 = 12
    MULTI = 14
    REMOVE_WATCHES = 18
    MULTI_READ = 22
    AUTH = 100
    ADD_WATCH = 106


class RequestError(Exception):
    """A server refuses a request, or a part of a request, with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = int(code)  # plain: how Python shows an IntEnum depends on its version
