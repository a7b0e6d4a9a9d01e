"""The session that ``connect`` makes: it owns its kazoo client, and replaces it when it is beyond repair."""

from __future__ import annotations

import logging
import threading
from time import monotonic

from kazoo.protocol.states import KazooState

from leaderq.errors import AccessRefused, ConnectionLost, NoNode, NoPermission, ServersUnreachable, ZooKeeperError
from leaderq.zookeeper.address import Address
from leaderq.zookeeper.client import Client
from leaderq.zookeeper.ending import SessionEnder
from leaderq.zookeeper.keeper import Keeper
from leaderq.zookeeper.security import Security
from leaderq.zookeeper.session import Session
from leaderq.zookeeper.state import Credentials, SessionState

log = logging.getLogger(__name__)
_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}
FAREWELL_S = 1.0
"""How long a replaced client may take to let go, and as long again to end its session through another connection."""


class OwnedSession(Session):
    """See :class:`~leaderq.zookeeper.Session`."""

    def __init__(self, address: Address, *, timeout_s: float, security: Security, name: str, max_request_bytes: int) -> None:
        super().__init__(address=str(address), chroot=address.chroot, max_request_bytes=max_request_bytes)
        self._where = address
        self._requested_timeout_s = timeout_s
        self._security = security
        self._name = name or "zookeeper"
        self._replacing = threading.Lock()
        self._ender = SessionEnder(address, security=security)
        self._keeper = Keeper(self._name, client=self._current_client, replace=self.replace)
        self._own = self._new_client()
        self._link = self._own

    # -- beginning ------------------------------------------------------------------------------------------------------

    def begin(self, timeout_s: float) -> None:
        """Connect and make the chroot, or leave nothing behind.

        :raises ServersUnreachable: no server answered in ``timeout_s``.
        :raises AccessRefused: a server refused the credentials.
        """
        deadline = monotonic() + timeout_s
        try:
            self._own.open()
            self._await_connection(deadline, timeout_s)
            self._ensure_chroot(deadline, timeout_s)
            self._keeper.start()
        except BaseException:
            self.close(timeout_s=1.0)
            raise

    def _await_connection(self, deadline: float, timeout_s: float) -> None:
        link = self._own
        connected = threading.Event()

        def listener(_: str) -> None:
            connected.set()

        link.add_listener(listener)
        try:
            while not link.connected and not link.ended.is_set() and monotonic() < deadline:
                connected.wait(max(0.0, min(0.5, deadline - monotonic())))
                connected.clear()
        finally:
            link.remove_listener(listener)
        self._raise_if_refused()
        if not link.connected:
            raise self._unreachable(timeout_s)

    def _ensure_chroot(self, deadline: float, timeout_s: float) -> None:
        # The first round trip also proves the credentials: kazoo says "connected" before it has authenticated.
        try:
            if self.exists("/", timeout_s=max(0.1, deadline - monotonic())) is None and self.chroot:
                self._create_chroot(deadline)
        except NoPermission:
            raise
        except (ConnectionLost, AccessRefused) as exc:
            self._own.ended.wait(0.2)  # a refusal ends the client just after it fails its requests
            self._raise_if_refused()
            raise (exc if isinstance(exc, AccessRefused) else self._unreachable(timeout_s)) from exc

    def _create_chroot(self, deadline: float) -> None:
        chroot, self._chroot = self._chroot, ""
        try:
            self.ensure_path(chroot, timeout_s=max(0.1, deadline - monotonic()))
        except NoNode as exc:
            raise ZooKeeperError(
                f"the chroot {chroot!r} of {self._address!r} could not be made: someone deletes it", path=chroot
            ) from exc
        finally:
            self._chroot = chroot

    def _raise_if_refused(self) -> None:
        if self._own.auth_failed:
            who = self._security.user or self._security.principal or "nobody"
            trouble = self._own.journal.trouble or "no reason given"
            raise AccessRefused(
                f"ZooKeeper at {self._address!r} refused user {who!r} ({self._security.mechanism}): {trouble};"
                " check user, password and mechanism"
            )

    def _unreachable(self, waited_s: float) -> ServersUnreachable:
        trouble = self._own.journal.trouble
        remedy = (
            f"the last attempt said: {trouble}; is ZooKeeper listening there, and may this host reach it?" if trouble else ""
        )
        return ServersUnreachable("ZooKeeper", self._address, waited_s=waited_s, remedy=remedy)

    # -- its client -----------------------------------------------------------------------------------------------------

    def _new_client(self) -> Client:
        return Client(
            self._where,
            timeout_s=self._requested_timeout_s,
            security=self._security,
            label=f"leaderq-{self._name}",
            on_state=self._client_said,
            on_event=self._watches.route,
            on_end=self._client_ended,
        )

    def _client_said(self, client: Client, state: str) -> None:
        self._heard(client, _STATES[state])
        self._keeper.wake()

    def _client_ended(self, client: Client) -> None:
        self._keeper.wake()

    def _current_client(self) -> Client | None:
        return None if self._state is SessionState.CLOSED else self._own

    def drop_connection(self) -> None:
        super().drop_connection()
        self._keeper.expect_attempt()

    def replace(self, reason: str) -> None:
        self._guard()
        with self._replacing:
            with self._lock:
                if self._state is SessionState.CLOSED:
                    return
                # A client that died takes its connection along, not its session.
                old, credentials = self._own, self._credentials or self._former
                self._link = self._own = self._new_client()
                if self._state is not SessionState.LOST:
                    self._listeners.put(SessionState.LOST)
                self._state, self._credentials, self._former = SessionState.LOST, None, None
            log.warning("ZooKeeper session %s: replaced, for %s", self._label(old), reason)
            self._listeners.deliver()
            self._end(old, credentials, FAREWELL_S)
            with self._lock:
                is_wanted = self._state is not SessionState.CLOSED
            if is_wanted:
                self._own.open()

    @property
    def resolved_servers(self) -> list[tuple[str, int]]:
        return self._own.resolved

    def _finish(self, timeout_s: float) -> bool:
        self._keeper.stop()
        deadline = monotonic() + timeout_s
        with self._replacing:  # a replacement under way is bounded, and must not open a client after we closed it
            return self._end(self._own, self._credentials or self._former, max(0.0, deadline - monotonic()))

    def _end(self, client: Client, credentials: Credentials | None, timeout_s: float) -> bool:
        deadline = monotonic() + timeout_s
        if client.finish(timeout_s=timeout_s / 2) or credentials is None:
            return True
        if client.auth_failed:
            return False
        # Its connection is gone or silent; another one may still reach a server, and spare everyone the wait for the expiry.
        left_s = max(0.0, deadline - monotonic())
        self._ender.know(client.resolved)
        if not self._ender.end(credentials, timeout_s=left_s, session_timeout_s=client.timeout_s, patient=False):
            log.warning("ZooKeeper session %s could not be ended; it expires by itself", self._address)
            return False
        return True


def opened(
    address: Address, *, timeout_s: float, connect_timeout_s: float, security: Security, name: str, max_request_bytes: int
) -> Session:
    """A started session of its own; see :func:`leaderq.connect`."""
    session = OwnedSession(address, timeout_s=timeout_s, security=security, name=name, max_request_bytes=max_request_bytes)
    session.begin(connect_timeout_s)
    return session
