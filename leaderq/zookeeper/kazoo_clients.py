"""A session of its own for every ``KazooClient`` that a user brings.

The user's client is neither changed nor used, because kazoo does not notice a dead connection in
use, may block callers, and does not tell the granted time-out. leaderq reads from it where
ZooKeeper is and who the user is, and opens one session beside it, however many objects use that
client.

============================  ======================================================================
what happens                  what the client's session does
============================  ======================================================================
the client is not connected   goes on: it has a connection of its own
the client's session expires  goes on
the client is stopped         CLOSED, for good; its ephemeral znodes vanish
the client is started again   the next ``as_session`` opens a new session
nobody keeps the client       CLOSED as soon as Python has collected it; it must be stopped for that
``close()`` by one user       nothing: others may be using it
============================  ======================================================================
"""

from __future__ import annotations

import os
import ssl
import threading
import weakref
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.security import ACL, OPEN_ACL_UNSAFE

from leaderq.errors import ConfigurationError
from leaderq.zookeeper.client import Client
from leaderq.zookeeper.paths import Address
from leaderq.zookeeper.private_api import asked_timeout_s, sasl_options, stop_flag
from leaderq.zookeeper.security import Security
from leaderq.zookeeper.session import CLOSE_TIMEOUT_S, DEFAULT_CONNECT_TIMEOUT_S, Session

AnyClient: TypeAlias = Session | KazooClient
"""Accepted wherever ZooKeeper is needed."""
STOP_S = 1.0
"""How long the client's ``stop()`` may be delayed while our session ends; milliseconds, usually."""


def as_session(client: AnyClient) -> Session:
    """Return ``client`` if it is a ``Session``, else the one session that belongs to this
    ``KazooClient``.

    The first call with a client opens the session, with the client's hosts, chroot, credentials,
    default ACL, TLS files and requested time-out. It may take as long as :func:`leaderq.connect`.

    *Guarantees:* all that a :class:`Session` promises. The session ends when the client is stopped;
    ``close()`` before that does nothing. It keeps neither the client nor the interpreter alive.
    *Not guaranteed:* that client and session are connected at the same time, or see the same: they
    are two sessions, with ephemeral znodes of their own.

    :raises ConfigurationError: the client is not started, or is not a threaded kazoo client.
    :raises ServersUnreachable: no server answered in time.
    :raises AccessRefused: a server refused the client's credentials.
    """
    if isinstance(client, Session):
        return client
    if not isinstance(getattr(client, "handler", None), SequentialThreadingHandler):
        wanted = "neither a leaderq Session nor a KazooClient with its threading handler"
        raise ConfigurationError(f"{client!r} is {wanted}")
    with _lock:
        place = _places.setdefault(client, _Place())
    with place.lock:
        if place.session is None or place.session.is_orphaned:
            place.session = _OwnSession.beside(client)
        return place.session


def _is_running(client: KazooClient) -> bool:
    return not stop_flag(client).is_set() and client.client_state != KeeperState.AUTH_FAILED


class _OwnSession(Session):
    """The session of one ``KazooClient``. It does not keep the client alive."""

    _owner: weakref.ref[KazooClient]
    _is_orphaned = False

    @classmethod
    def beside(cls, client: KazooClient) -> _OwnSession:
        """Open a session for ``client``, which ends when the client ends."""
        remedy = "call its start() first, or use leaderq.connect(address)"
        not_started = ConfigurationError(f"the KazooClient given is not started; {remedy}")
        if not _is_running(client):
            raise not_started
        session = cls(
            Address(tuple(client.hosts), client.chroot),
            timeout_s=asked_timeout_s(client),
            security=_security_of(client),
            name="kazoo-client",
        )
        session._owner = weakref.ref(client, lambda _: session._supervisor.wake())
        session._begin(DEFAULT_CONNECT_TIMEOUT_S)
        client.add_listener(session._owner_said)
        if not _is_running(client):  # stopped meanwhile, when nobody listened
            session._close()
            raise not_started
        return session

    @property
    def is_orphaned(self) -> bool:
        """Whether the client was stopped, or is gone. Stays true if the client is started again."""
        client = self._owner()
        if client is None or not _is_running(client):
            self._is_orphaned = True
        return self._is_orphaned

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """Close the session if the client has ended; else do nothing. Returns whether the session
        is over.
        """
        return self._close(timeout_s) if self.is_orphaned else False

    def _owner_said(self, state: str) -> bool:
        """Hear of a new state of the user's client, on its connection thread; return whether kazoo
        may forget this listener.
        """
        if state != KazooState.LOST or not self.is_orphaned:
            return False
        self._supervisor.wake()
        # The client's stop() waits for this thread: when it returns, our znodes are gone as well.
        self._closed.wait(STOP_S)
        return True

    def _client_to_watch(self) -> Client | None:
        # On the supervisor's thread, at each change. The client's own listener hears nothing of a
        # stop() after its session expired, nor of the end of a client that was collected.
        if self.is_orphaned:
            self._close()
        return super()._client_to_watch()


@dataclass(frozen=True, kw_only=True)
class _ClientSecurity(Security):
    """The credentials of a ``KazooClient``, which may have more than :class:`Security` allows."""

    schemes: tuple[tuple[str, str], ...] = field(repr=False)
    sasl: Mapping[str, Any] | None = field(repr=False)
    default_acl: tuple[ACL, ...]

    @property
    def uses_sasl(self) -> bool:
        return self.sasl is not None

    def auth_data(self) -> list[tuple[str, str]]:
        return list(self.schemes)

    def sasl_options(self) -> dict[str, Any] | None:
        return None if self.sasl is None else dict(self.sasl)

    def acl(self) -> list[ACL]:
        return list(self.default_acl)

    def ssl_context(self) -> ssl.SSLContext | None:
        context = super().ssl_context()
        if context is not None:
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # Python 3.13's default, not kazoo's
        return context

    def validate(self) -> None:
        """Check nothing, because the client is connected with these credentials."""


def _security_of(client: KazooClient) -> _ClientSecurity:
    sasl = sasl_options(client)
    who = sasl or {}
    has_certificate = client.use_ssl and client.certfile and client.keyfile
    return _ClientSecurity(
        user=who.get("username"),
        principal=who.get("principal"),
        mechanism=who.get("mechanism", "digest"),
        tls=client.use_ssl,
        ca=client.ca if client.use_ssl else None,
        cert=client.certfile if has_certificate else None,
        key=client.keyfile if has_certificate else None,
        key_password=client.keyfile_password,
        verify=client.verify_certs,
        check_hostname=client.check_hostname,
        schemes=tuple(client.auth_data),
        sasl=sasl,
        default_acl=tuple(client.default_acl or OPEN_ACL_UNSAFE),
    )


@dataclass
class _Place:
    """Holds the session of one client; under the lock only one thread opens it."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    session: _OwnSession | None = None


_lock = threading.Lock()
_places: weakref.WeakKeyDictionary[KazooClient, _Place] = weakref.WeakKeyDictionary()


def _forget_all() -> None:
    """Forget all sessions, in a forked child: they belong to the parent, whose threads may hold the
    locks.
    """
    global _lock, _places
    _lock, _places = threading.Lock(), weakref.WeakKeyDictionary()


os.register_at_fork(after_in_child=_forget_all)
