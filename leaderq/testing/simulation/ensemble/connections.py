"""A server's end of the connection to one client."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from kazoo.security import ACL, Id

from leaderq.testing.simulation.ensemble.messages import (
    OK,
    Code,
    Connected,
    Hungup,
    Refused,
    RequestType,
    ServerAnswer,
    ServerEvent,
)
from leaderq.testing.simulation.ensemble.sessions import password_of
from leaderq.testing.simulation.ensemble.tree import OPEN, READ, is_allowed

Deliver = Callable[[object], None]


class Host(Protocol):
    """The server that has this end of the connection."""

    last_zxid: int
    hides_events: bool

    def enter(self, act: Callable[..., object], *args: Any) -> None:
        """Call ``act`` as soon as the server can."""

    def receive(self, end: ServerEnd, xid: int, request: Any) -> None:
        """A request has arrived."""

    def lose(self, end: ServerEnd) -> None:
        """The client has closed the connection."""

    def forget(self, end: ServerEnd) -> None:
        """The connection is over."""


class PendingRequest:
    """A request that waits for its commit, or for an earlier request that does."""

    __slots__ = ("end", "is_write", "kind", "request", "xid")

    def __init__(self, end: ServerEnd, xid: int, kind: int, request: Any, is_write: bool) -> None:
        self.end = end
        self.xid = xid
        self.kind = kind
        self.request = request
        self.is_write = is_write


class ServerEnd:
    """The server's end of a connection. A client calls :meth:`send` and :meth:`close`, which never
    block and never raise.

    ``deliver`` is called with each message of the server, in order, at the moment at which the
    server sends it: from within ``send``, ``close``, the methods of the ensemble, or a timer. It
    may call these methods again.
    """

    __slots__ = (
        "_deliver", "early", "identities", "is_established", "is_open", "queue", "server",
        "session_id", "timeout_ms",
    )  # fmt: skip

    def __init__(self, server: Host, deliver: Deliver, timeout_ms: int) -> None:
        self.server = server
        self._deliver = deliver
        self.timeout_ms = timeout_ms
        self.session_id = 0
        self.identities: tuple[Id, ...] = ()
        self.is_open = True
        self.is_established = False
        self.early: list[tuple[int, Any]] = []
        """Requests that came before the session was there."""
        self.queue: deque[PendingRequest] = deque()

    # -- what the client does ----------------------------------------------------------------------

    def send(self, xid: int, request: Any) -> None:
        """Send a request, which arrives at the server; ignored if the connection is closed."""
        self.server.enter(self.server.receive, self, xid, request)

    def close(self) -> None:
        """Close the client's end. It hears nothing more; its watches end, and its session does
        not.
        """
        self._deliver = _ignore
        self.server.enter(self.server.lose, self)

    # -- what the server does ----------------------------------------------------------------------

    def establish(self) -> None:
        """The session is there."""
        if not self.is_open:
            return
        self.is_established = True
        granted = Connected(self.session_id, password_of(self.session_id), self.timeout_ms / 1000)
        self._deliver(granted)
        early, self.early = self.early, []
        for xid, request in early:
            self.server.receive(self, xid, request)

    def refuse(self) -> None:
        """There is no such session."""
        if self.is_open:
            self._deliver(Refused())
            self.hang_up()

    def answer(self, xid: int, code: int, value: Any) -> None:
        """Answer one request."""
        if self.is_open:
            self._deliver(ServerAnswer(xid, self.server.last_zxid, code, value))

    def tell(self, kind: int, path: str, acl: tuple[ACL, ...]) -> None:
        """Send an event, unless the client may not read the znode."""
        is_hidden = acl is not OPEN and self.server.hides_events
        if is_hidden and not is_allowed(acl, READ, self.identities):
            return
        if self.is_open:
            self._deliver(ServerEvent(kind, path))

    def hang_up(self) -> None:
        """Close the connection from the server's side."""
        if self.is_open:
            self.server.forget(self)
            self._deliver(Hungup())

    def finish(self, pending: PendingRequest, code: int, value: Any) -> None:
        """Answer the request at the head of the queue."""
        if code == Code.SESSION_MOVED:
            self.hang_up()
        elif pending.kind == RequestType.CLOSE:
            self.answer(pending.xid, OK, None)
            self.hang_up()
        else:
            self.answer(pending.xid, code, value)


def _ignore(_: object) -> None:
    pass
