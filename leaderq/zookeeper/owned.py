"""The session that ``connect`` makes: it owns its kazoo client, and replaces it when it is beyond repair."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

from kazoo.protocol.states import KazooState

from leaderq.errors import (
    AccessRefused,
    ConfigurationError,
    ConnectionLost,
    NoNode,
    NoPermission,
    ServersUnreachable,
    ZooKeeperError,
)
from leaderq.zookeeper.client import Client
from leaderq.zookeeper.ending import SessionEnder
from leaderq.zookeeper.paths import Address, parsed_address
from leaderq.zookeeper.security import NO_SECURITY, Credentials, Security
from leaderq.zookeeper.session import Session, SessionState
from leaderq.zookeeper.wire import MAX_REQUEST_BYTES

log = logging.getLogger(__name__)
STUCK_S = 15.0
"""How long a client may go without an attempt to connect; attempts follow each other within seconds, but name servers may
be slow."""
BACKOFF_S = (0.5, 30.0)
CALM_S = 60.0


class SupervisedClient(Protocol):
    """What the supervisor looks at."""

    ended: threading.Event

    @property
    def connected(self) -> bool: ...

    @property
    def attempts(self) -> int: ...

    @property
    def timeout_s(self) -> float: ...


@dataclass(frozen=True, slots=True)
class ClientObservation:
    """A client at one moment. ``quiet_s``: see :class:`TimeWithoutAttempt`."""

    has_ended: bool
    is_connected: bool
    quiet_s: float
    stuck_after_s: float


def replacement_reason(sight: ClientObservation) -> str | None:
    """Why this client must be replaced, or ``None``; pure."""
    if sight.has_ended:
        return "its connection thread ended"
    if not sight.is_connected and sight.quiet_s > sight.stuck_after_s:
        return f"it made no attempt to connect for {sight.quiet_s:.0f} s"
    return None


def pause_s(replacements: int, chance: float) -> float:
    """Seconds to wait before the next replacement, after so many in a row; ``chance`` from 0 to 1 keeps a crowd apart;
    pure."""
    least, most = BACKOFF_S
    return 0.0 if replacements == 0 else min(most, least * 2.0 ** min(replacements - 1, 10)) * (0.5 + chance / 2)


class TimeWithoutAttempt:
    """How long a client has been without a connection and without an attempt to get one; pure, but for what it remembers.

    The supervisor sleeps while all is well, for hours: time in which nobody looked must not count as quiet.
    """

    def __init__(self) -> None:
        self._attempt: tuple[object, int] = (None, -1)
        self._was_connected = False
        self._since_s = 0.0

    def look(self, now_s: float, client: object, attempts: int, *, is_connected: bool) -> float:
        """Seconds of quiet by now."""
        attempt = (client, attempts)
        if is_connected or self._was_connected or attempt != self._attempt:
            self._since_s = now_s
        self._attempt, self._was_connected = attempt, is_connected
        return now_s - self._since_s

    def has_tried(self, client: object, attempts: int) -> bool:
        """Whether this client has made an attempt since the last look."""
        return (client, attempts) != self._attempt


class ClientSupervisor:
    """Watches over a session's kazoo client, and has it replaced when it is beyond repair.

    One thread, asleep while all is well; woken by every change of state. An outage, however long, is no reason: kazoo goes on
    connecting, and the session may still stand at the servers. Reasons are: the connection thread has ended without our
    asking (an exception inside kazoo, refused credentials); or there is no connection and no attempt to get one for a long
    time.
    """

    def __init__(self, name: str, *, client: Callable[[], SupervisedClient | None], replace: Callable[[str], None]) -> None:
        self._client = client
        self._replace = replace
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._doubtful = False
        self._thread = threading.Thread(target=self._run, name=f"leaderq-{name}-supervisor", daemon=True)
        self._quiet = TimeWithoutAttempt()
        self._replaced: list[float] = []

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; does not wait, since the supervisor itself may be who stops it."""
        self._stopped.set()
        self._woken.set()

    def wake(self) -> None:
        """Something changed. From any thread; returns at once."""
        self._woken.set()

    def expect_attempt(self) -> None:
        """The connection was dropped: unless an attempt to connect follows, the client is stuck, whatever its state says."""
        self._doubtful = True
        self._woken.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            client = self._client()
            if client is None:
                return
            reason = replacement_reason(self._look(client))
            if reason is not None:
                self._act(reason)
                continue
            calm = client.connected and not self._doubtful
            self._woken.wait(None if calm else STUCK_S / 5)
            self._woken.clear()

    def _look(self, client: SupervisedClient) -> ClientObservation:
        attempts = client.attempts
        if self._quiet.has_tried(client, attempts):
            self._doubtful = False
        is_connected = client.connected and not self._doubtful
        quiet_s = self._quiet.look(monotonic(), client, attempts, is_connected=is_connected)
        return ClientObservation(client.ended.is_set(), is_connected, quiet_s, max(STUCK_S, 2 * client.timeout_s))

    def _act(self, reason: str) -> None:
        now = monotonic()
        self._replaced = [at for at in self._replaced if now - at < CALM_S]
        if self._stopped.wait(pause_s(len(self._replaced), random.random())):
            return
        self._replaced.append(monotonic())
        self._doubtful = False
        try:
            self._replace(reason)
        except Exception:
            log.exception("the ZooKeeper client could not be replaced; trying again")


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
        self._supervisor = ClientSupervisor(self._name, client=self._current_client, replace=self.replace)
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
            self._supervisor.start()
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
            trouble = self._own.kazoo_log.trouble or "no reason given"
            raise AccessRefused(
                f"ZooKeeper at {self._address!r} refused user {who!r} ({self._security.mechanism}): {trouble};"
                " check user, password and mechanism"
            )

    def _unreachable(self, waited_s: float) -> ServersUnreachable:
        trouble = self._own.kazoo_log.trouble
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
        self._supervisor.wake()

    def _client_ended(self, client: Client) -> None:
        self._supervisor.wake()

    def _current_client(self) -> Client | None:
        return None if self._state is SessionState.CLOSED else self._own

    def drop_connection(self) -> None:
        super().drop_connection()
        self._supervisor.expect_attempt()

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
        self._supervisor.stop()
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


DEFAULT_TIMEOUT_S = 10.0
DEFAULT_CONNECT_TIMEOUT_S = 15.0


def connect(
    hosts: str,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    connect_timeout_s: float = DEFAULT_CONNECT_TIMEOUT_S,
    security: Security | None = None,
    name: str = "",
    max_request_bytes: int = MAX_REQUEST_BYTES,
) -> Session:
    """A started session with the ZooKeeper servers at ``hosts``: ``host:port,host:port/chroot`` (port 2181 unless given).

    ``timeout_s`` is the session time-out asked for; the servers may grant another (``session.timeout_s``). ``name``
    appears in the names of threads. ``max_request_bytes`` is the servers' ``jute.maxbuffer``. The chroot is created if it
    is missing.

    *Guarantees:* returns or raises within ``connect_timeout_s`` and about a second; leaves no thread or socket behind
    when it raises.

    :raises ConfigurationError: the address, a time or the security cannot be used; every problem is named.
    :raises MissingPiece: SASL without the extra ``leaderq[sasl]``.
    :raises ServersUnreachable: no server answered in time.
    :raises AccessRefused: a server refused the credentials.
    """
    address = parsed_address(hosts)
    security = security or NO_SECURITY
    security.validate()
    for what, seconds in (("session time-out", timeout_s), ("connect time-out", connect_timeout_s)):
        if not 0 < seconds < 2**31 / 1000:
            raise ConfigurationError(f"{what} {seconds!r} s is out of range; give a positive number of seconds")
    return opened(
        address,
        timeout_s=timeout_s,
        connect_timeout_s=connect_timeout_s,
        security=security,
        name=name,
        max_request_bytes=max_request_bytes,
    )
