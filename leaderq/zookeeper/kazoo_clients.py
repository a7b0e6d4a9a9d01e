"""A session carried by a kazoo client that the user has made, started and will stop."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.serialization import Watch
from kazoo.protocol.states import Callback, KazooState
from kazoo.security import ACL, OPEN_ACL_UNSAFE

from leaderq.errors import ConfigurationError
from leaderq.zookeeper.connection import ServerConnection
from leaderq.zookeeper.security import Credentials
from leaderq.zookeeper.session import Session, SessionState
from leaderq.zookeeper.translation import NotSent
from leaderq.zookeeper.wire import Request

AnyClient: TypeAlias = Session | KazooClient
"""What everything that needs ZooKeeper takes."""

_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}


def as_session(client: AnyClient) -> Session:
    """``client`` itself if it is a ``Session``, else a session that uses the started ``KazooClient`` without owning it.

    *Not guaranteed* for a ``KazooClient``: that a silent connection in use is noticed (kazoo does not), and that a
    request made at the very moment the connection breaks fails (kazoo may queue it until it is connected again).
    ``close`` leaves the client running.

    :raises ConfigurationError: the client is not started, or is not a threaded kazoo client.
    """
    return client if isinstance(client, Session) else AdoptedSession(client)


class AdoptedSession(Session):
    """See :func:`as_session`."""

    def __init__(self, client: KazooClient) -> None:
        if not isinstance(getattr(client, "handler", None), SequentialThreadingHandler):
            raise ConfigurationError(f"{client!r} is neither a leaderq Session nor a KazooClient with its threading handler")
        if not client.connected:
            raise ConfigurationError(
                "the KazooClient given is not connected; call its start() first, or use leaderq.connect(address)"
            )
        hosts = ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in client.hosts)
        super().__init__(address=hosts + client.chroot, chroot=client.chroot)
        self._lent = _LentLink(client, self._watches.route)
        self._link = self._lent
        client.add_listener(self._client_said)
        self._client_said(client.state)

    def _client_said(self, state: str) -> None:
        link = self._lent
        self._heard(link, _STATES[state])

    def _prepare_watches(self) -> None:
        self._lent.teach_persistent_watches()

    def replace(self, reason: str) -> None:
        raise ConfigurationError(
            "a session on a KazooClient given by its user cannot be replaced; use leaderq.connect(address) for that"
        )

    def _finish(self, timeout_s: float) -> bool:
        self._lent.client.remove_listener(self._client_said)
        self._lent.forget_persistent_watches()
        return False


class _LentLink:
    """The carrier of an adopted session."""

    def __init__(self, client: KazooClient, on_event: Callable[[int, str], None]) -> None:
        self.client = client
        self._on_event = on_event
        self._negotiated_s = _negotiated_s(client)
        self._taught: Callable[[Any, int], None] | None = None

    @property
    def timeout_s(self) -> float:
        return self._negotiated_s

    @property
    def acl(self) -> list[ACL]:
        return list(self.client.default_acl or OPEN_ACL_UNSAFE)

    @property
    def attempts(self) -> int:
        return 0

    @property
    def credentials(self) -> Credentials | None:
        session_id = self.client._session_id
        return Credentials(session_id, bytes(self.client._session_passwd)) if session_id else None

    def is_connection_thread(self) -> bool:
        return threading.current_thread() is self.client._connection._connection_routine

    def complete(self, job: Callable[[], object]) -> None:
        if self.client.handler.running:
            self.client.handler.completion_queue.put(job)
        else:
            job()

    def watch(self, job: Callable[[], object]) -> None:
        self.client.handler.dispatch_callback(Callback("watch", job, ()))

    def submit(self, request: Request, reply: Any) -> None:
        if not self.client.connected:
            reply.set_exception(NotSent())
            return
        self.client._call(request, reply)

    def drop(self) -> None:
        ServerConnection.drop(self.client._connection)  # type: ignore[arg-type]

    def open(self) -> None:
        """It was started by its owner."""

    def finish(self, *, timeout_s: float) -> bool:
        return False

    def teach_persistent_watches(self) -> None:
        """Have events pass through here first; on this one client only, and undone by ``forget_persistent_watches``."""
        connection = self.client._connection
        if self._taught is not None:
            return
        below = connection._read_watch_event

        def routed(buffer: bytes, offset: int) -> None:
            event, _ = Watch.deserialize(buffer, offset)
            if event.type in (1, 2, 3, 4):
                self._on_event(event.type, event.path)
            below(buffer, offset)

        self._taught = routed
        connection._read_watch_event = routed  # type: ignore[method-assign]

    def forget_persistent_watches(self) -> None:
        connection = self.client._connection
        if self._taught is not None and connection.__dict__.get("_read_watch_event") is self._taught:
            del connection.__dict__["_read_watch_event"]


def _negotiated_s(client: KazooClient) -> float:
    """The session time-out that the servers granted; kazoo keeps it in a local variable of its loop and nowhere else.

    A lease must not be computed from the time-out *asked for*, which the servers may have cut. So the loop's frame is
    looked at, read-only; should kazoo change, the smaller of what was asked and 4 s (the least that default servers
    grant) is assumed.
    """
    thread = client._connection._connection_routine
    frame = sys._current_frames().get(thread.ident) if thread is not None and thread.ident is not None else None
    while frame is not None:
        if frame.f_code is ConnectionHandler._connect_attempt.__code__ and "read_timeout" in frame.f_locals:
            return float(frame.f_locals["read_timeout"]) * 3 / 2
        frame = frame.f_back
    return min(client._session_timeout / 1000.0, 4.0)
