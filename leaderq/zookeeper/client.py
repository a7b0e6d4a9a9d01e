"""A kazoo client for one session after another, with every wait bounded; and its supervisor.

kazoo's ``stop`` may wait forever, its ``restart`` may close the new session, and its ``_call``
queues silently without a connection. None of them is used: requests are accepted exactly while
connected, and ``finish`` ends the client within its budget. kazoo also says "connected" before the
servers have accepted the credentials; here nobody hears of the connection until they have.
"""

from __future__ import annotations

import logging
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry

from leaderq.base import clock
from leaderq.threads import Retry, Service, primitives
from leaderq.zookeeper import private_api
from leaderq.zookeeper.connection import ServerConnection, Transport
from leaderq.zookeeper.paths import Address
from leaderq.zookeeper.security import Credentials, Security
from leaderq.zookeeper.translation import NotSent

log = logging.getLogger(__name__)
kazoo_log = logging.getLogger("leaderq.zookeeper.kazoo")
_OPEN_STATES = (KeeperState.CONNECTED, KeeperState.CONNECTED_RO)


class KazooLog:
    """Stands in for the logger of one kazoo client: quieter, and without secrets.

    kazoo logs session passwords, ``addauth`` credentials and data below INFO, and a line or two for
    each attempt while servers are unreachable. So only errors keep their level, warnings and infos
    become DEBUG, and everything below is dropped before it is formatted. ``trouble`` is the newest
    warning, for our error messages.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self.trouble = ""

    def log(self, level: int, message: str, *args: Any, **kwargs: Any) -> None:
        if level >= logging.WARNING:
            self.warning(message, *args)

    def debug(self, message: str, *args: Any, **kwargs: Any) -> None:
        """Drop the line, because such lines hold passwords and data."""

    def info(self, message: str, *args: Any, **kwargs: Any) -> None:
        kazoo_log.debug("%s: " + message, self._label, *args)

    def warning(self, message: str, *args: Any, **kwargs: Any) -> None:
        self.trouble = message % args if args else message
        kazoo_log.debug("%s: %s", self._label, self.trouble)

    def error(self, message: str, *args: Any, **kwargs: Any) -> None:
        kazoo_log.error("%s: " + message, self._label, *args)

    def exception(self, message: str, *args: Any, **kwargs: Any) -> None:
        # kazoo's arguments may hold a request, and with it data; the traceback says enough.
        what = message.partition(":")[0]
        kazoo_log.error("kazoo failed client=%s error=%s", self._label, what, exc_info=True)


class Client(KazooClient):
    """A kazoo client that has one session at a time; see the module.

    ``on_state`` and ``on_event`` run on the connection thread, and must return at once; ``on_end``
    is called once, when that thread has ended. Until this client has connected, it uses the
    time-out and the server addresses of ``predecessor``. ``tls`` is the context of ``security``,
    whose files its owner has read once: they may be gone, or have other relative paths, by now.
    """

    handler: Transport

    def __init__(
        self,
        address: Address,
        *,
        timeout_s: float,
        security: Security,
        label: str,
        on_state: Callable[[Client, str], object],
        on_event: Callable[[int, str], object],
        on_end: Callable[[], object],
        tls: ssl.SSLContext | None,
        credentials: Credentials | None = None,
        predecessor: Client | None = None,
    ) -> None:
        self.kazoo_log = KazooLog(label)
        self.auth_failed = False
        self.ended = primitives.Event()
        self._accepting = primitives.Lock()
        self._accepts_requests = False
        self._open_state: str = KeeperState.CONNECTED
        # kazoo's own default doubles the pause between attempts up to an hour.
        retry = KazooRetry(max_tries=-1, delay=0.1, max_delay=1)
        super().__init__(
            hosts=str(address),
            timeout=timeout_s,
            client_id=(credentials.session_id, credentials.password) if credentials else None,
            handler=Transport(label, lambda: self.connection.connect_limit_s(), tls),
            default_acl=security.acl(),
            auth_data=security.auth_data(),
            connection_retry=retry,
            logger=self.kazoo_log,
            use_ssl=security.uses_tls,
        )
        self.connection = ServerConnection(
            self,
            timeout_s=timeout_s,
            retry=retry.copy(),
            logger=self.kazoo_log,
            sasl_options=security.sasl_options(),
            on_authenticated=lambda: self._session_callback(self._open_state),
            on_event=on_event,
            on_end=lambda: self._has_ended(on_end),
        )
        if predecessor is not None:
            self.connection.timeout_s = predecessor.connection.timeout_s
            self.connection.resolved = predecessor.connection.resolved
        private_api.use_connection(self, self.connection)
        self.add_listener(lambda state: on_state(self, state))

    def _has_ended(self, on_end: Callable[[], object]) -> None:
        with self._accepting:
            self._accepts_requests = False
        self._fail_pending()
        self.ended.set()
        on_end()

    # -- what a session asks -----------------------------------------------------------------------

    @property
    def resolved(self) -> list[tuple[str, int]]:
        """The numeric addresses of the servers, as last resolved."""
        return [(ip, port) for _, ip, port in self.connection.resolved]

    @property
    def credentials(self) -> Credentials | None:
        """The id and password of the present session, connected or not; ``None`` without a
        session.
        """
        session_id, password = private_api.session_id_and_password(self)
        return Credentials(session_id, password) if session_id else None

    def is_connection_thread(self) -> bool:
        """Whether the caller runs on the connection thread, which reads all answers."""
        return primitives.current_thread() is private_api.connection_thread(self.connection)

    def submit(self, request: Any, reply: Any) -> None:
        """Send ``request``, or fail ``reply`` at once if there is no connection. Never blocks."""
        with self._accepting:
            if is_accepted := self._accepts_requests:
                requests = private_api.request_queue(self)
                requests.append((request, reply))
                is_first = len(requests) == 1
        if not is_accepted:
            reply.set_exception(NotSent())
        elif is_first:  # else the connection thread is awake, and looks until the queue is empty
            self.handler.wake()

    def finish(self, *, timeout_s: float, ends_session: bool = True) -> bool:
        """Close the session, and release all threads and sockets, within ``timeout_s`` seconds.

        Returns whether a server confirmed the end of the session. May be called more than once,
        from any thread.
        """
        deadline = clock.awake_s() + timeout_s
        with self._accepting:
            was_connected, self._accepts_requests = self._accepts_requests, False
        private_api.stop_flag(self).set()
        can_be_told = was_connected and not self.ended.is_set()
        if ends_session and can_be_told and not self.is_connection_thread():
            self.connection.close_session()
            self.ended.wait(max(0.0, deadline - clock.awake_s()))
        if not self.ended.is_set():
            self.connection.drop()
        deadline = max(deadline, clock.awake_s() + 0.3)
        thread = private_api.connection_thread(self.connection)
        if thread is not None and not self.is_connection_thread():
            thread.join(deadline - clock.awake_s())
        self._fail_pending()
        self.handler.stop(timeout_s=max(0.1, deadline - clock.awake_s()))
        self.connection.release_when_ended()
        return self.connection.is_session_closed

    # -- kazoo's own ways, guarded -----------------------------------------------------------------

    def _call(self, request: Any, async_object: Any) -> None:
        self.submit(request, async_object)

    def _session_callback(self, state: str) -> None:
        if state in _OPEN_STATES and self.connection.is_connecting:
            self._open_state = state  # said before the credentials were sent
            return
        # Requests are refused before kazoo answers queued ones, and accepted before anyone hears of
        # the connection: so nothing is left in the queue to be sent by surprise after a
        # reconnection, and no lock is held while listeners run.
        if state == KeeperState.AUTH_FAILED:
            self.auth_failed = True
        with self._accepting:
            self._accepts_requests = state in _OPEN_STATES
        if state == KeeperState.CONNECTING:
            # These never went out, which is more than kazoo's "connection loss" tells.
            _fail_all(private_api.request_queue(self), NotSent())
        super()._session_callback(state)

    def _fail_pending(self) -> None:
        """Fail all requests that are queued or in flight. For a client whose connection thread does
        not do so any more; any thread may call it.
        """
        _fail_all(private_api.request_queue(self), NotSent())
        _fail_all(private_api.requests_in_flight(self), ConnectionLoss())


def _fail_all(waiting: deque[Any], exc: Exception) -> None:
    with suppress(IndexError):  # other threads may empty it meanwhile
        while True:
            _, reply, *_ = waiting.popleft()
            if reply is not None:
                reply.set_exception(exc)


STUCK_S = 15.0
"""How long a client may go without an attempt to connect: name servers may be slow."""
REPLACEMENTS = Retry(first_s=0.5, most_s=30.0)
CALM_S = 60.0
"""Older replacements do not count."""
_Attempt = tuple[object, int]
"""A client, and how many attempts to connect it has made."""


class ClientSupervisor:
    """Watches a session's client, and has it replaced when it is beyond repair.

    It is one thread, which sleeps while all is well. There are two reasons to replace a client: its
    connection thread has ended although nobody stopped it (an exception inside kazoo, refused
    credentials); or for a long time there was no connection and no attempt to get one. An outage,
    however long, is not a reason: kazoo keeps trying to connect, and the servers may still have the
    session. ``client`` returns the client to watch, or ``None``. Call ``wake`` when something has
    changed, from any thread or a finalizer.
    """

    def __init__(
        self,
        name: str,
        client: Callable[[], Client | None],
        replace: Callable[[str], None],
    ) -> None:
        self._client = client
        self._replace = replace
        self._service = Service.repeating(f"leaderq-{name}-supervisor", self._step)
        self.start, self.wake = self._service.start, self._service.wake
        self._dropped: _Attempt | None = None
        """The attempt whose connection was dropped by us."""
        self._idle: tuple[_Attempt, float] | None = None
        """While there is no connection: the newest attempt, and since when there was no other. That
        is counted from the first look that found this, because we may not look for hours.
        """
        self._replaced: list[float] = []
        self._next_at = 0.0  # no replacement before

    def stop(self) -> None:
        """Stop watching. Does not wait for the thread, because the thread itself may call this."""
        self._service.stop(0)

    def expect_attempt(self, client: Client) -> None:
        """Note that the connection of ``client`` is about to be dropped: if the client then makes
        no attempt to connect, it is stuck.
        """
        self._dropped = (client, client.connection.attempts)
        self.wake()

    def _step(self) -> float | None:
        client = self._client()
        if client is None:
            self.stop()
            return None
        now_s, attempt = clock.awake_s(), (client, client.connection.attempts)
        if client.connected and attempt != self._dropped:
            self._idle = None
        elif self._idle is None or self._idle[0] != attempt:
            self._idle = attempt, now_s
        idle_s = 0.0 if self._idle is None else now_s - self._idle[1]
        if client.ended.is_set():
            reason = "credentials refused" if client.auth_failed else "connection thread ended"
        elif idle_s > max(STUCK_S, 2 * client.connection.timeout_s):
            reason = f"no attempt to connect for {idle_s:.0f} s"
        else:
            return None if self._idle is None else STUCK_S / 5
        if now_s >= self._next_at:
            self._act(reason)
        return max(0.0, self._next_at - clock.awake_s())

    def _act(self, reason: str) -> None:
        now = clock.awake_s()
        self._replaced = [at for at in self._replaced if now - at < CALM_S] + [now]
        self._next_at = now + REPLACEMENTS.delay_s(len(self._replaced))
        try:
            self._replace(reason)
        except Exception:
            log.exception("ZooKeeper client not replaced, trying again reason=%s", reason)
