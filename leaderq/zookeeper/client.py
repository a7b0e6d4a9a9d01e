"""One kazoo client with one session after another, whose every wait is bounded; for ``Session``.

kazoo's ``stop`` may wait for ever, its ``restart`` may close the new session, and its ``_call``
queues silently while there is no connection, and blocks when its wake-up pipe is full. None of the
three is used: requests are accepted exactly while connected, and ``finish`` ends the client within
its budget, leaving to the threads what they still hold.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import ACL

from leaderq.zookeeper.connection import ServerConnection, Transport
from leaderq.zookeeper.paths import Address
from leaderq.zookeeper.private_api import (
    request_queue,
    requests_in_flight,
    session_id_and_password,
    stop_flag,
    use_connection,
)
from leaderq.zookeeper.security import Credentials, Security
from leaderq.zookeeper.translation import NotSent
from leaderq.zookeeper.wire import Request

kazoo_log = logging.getLogger("leaderq.zookeeper.kazoo")
_OPEN_STATES = (KeeperState.CONNECTED, KeeperState.CONNECTED_RO)


class KazooLog:
    """Stands in for the logger of one kazoo client: quieter, and without secrets.

    kazoo logs session passwords (level 5), ``addauth`` credentials and data (DEBUG), and a line or
    two per attempt while servers are away. A session says itself, once, what changed; so of kazoo's
    lines only errors keep their level, warnings and infos become DEBUG, and everything below is
    dropped before it is formatted. ``trouble`` is the newest warning, for our error messages.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self.trouble = ""

    def log(self, level: int, message: str, *args: Any, **kwargs: Any) -> None:
        if level >= logging.WARNING:
            self.warning(message, *args)

    def debug(self, message: str, *args: Any, **kwargs: Any) -> None:
        """Dropped: these lines carry passwords and data."""

    def info(self, message: str, *args: Any, **kwargs: Any) -> None:
        kazoo_log.debug("%s: " + message, self._label, *args)

    def warning(self, message: str, *args: Any, **kwargs: Any) -> None:
        self.trouble = message % args if args else message
        kazoo_log.debug("%s: %s", self._label, self.trouble)

    warn = warning

    def error(self, message: str, *args: Any, **kwargs: Any) -> None:
        kazoo_log.error("%s: " + message, self._label, *args)

    def exception(self, message: str, *args: Any, **kwargs: Any) -> None:
        # kazoo's arguments may hold a request, and with it data; the traceback says enough.
        what = message.partition(":")[0]
        kazoo_log.error("%s: kazoo failed: %s", self._label, what, exc_info=True)


class Client(KazooClient):
    """See the module. ``on_state`` and ``on_event`` run on the connection thread, and must return
    at once; ``on_end`` is called once, when that thread has ended for whatever reason."""

    handler: Transport

    def __init__(
        self,
        address: Address,
        *,
        timeout_s: float,
        security: Security,
        label: str,
        on_state: Callable[[Client, str], None],
        on_event: Callable[[int, str], None],
        on_end: Callable[[Client], None],
        credentials: Credentials | None = None,
    ) -> None:
        self.kazoo_log = KazooLog(label)
        self.auth_failed = False
        self.ended = threading.Event()
        self._accepting = threading.Lock()
        self._accepts_requests = False
        # kazoo's own default doubles the pause between attempts up to an hour.
        retry = KazooRetry(max_tries=-1, delay=0.1, max_delay=1)
        tls = security.ssl_context()
        super().__init__(
            hosts=str(address),
            timeout=timeout_s,
            client_id=(credentials.session_id, credentials.password) if credentials else None,
            handler=Transport(label, connect_limit=lambda: self.connection.connect_limit(), tls=tls),
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
            on_event=on_event,
            on_end=lambda: self._has_ended(on_end),
        )
        use_connection(self, self.connection)
        self.add_listener(lambda state: on_state(self, state))

    def _has_ended(self, on_end: Callable[[Client], None]) -> None:
        with self._accepting:
            self._accepts_requests = False
        self._fail_pending()
        self.ended.set()
        on_end(self)

    # -- what a session asks ------------------------------------------------------------------------

    @property
    def timeout_s(self) -> float:
        """The time-out granted at the newest connection; before the first one, the one asked for."""
        return self.connection.timeout_s

    @property
    def attempts(self) -> int:
        """Grows with every attempt to connect."""
        return self.connection.attempts

    @property
    def resolved(self) -> list[tuple[str, int]]:
        """The numeric addresses of the servers, as last resolved."""
        return [(ip, port) for _, ip, port in self.connection.resolved]

    @property
    def acl(self) -> list[ACL]:
        """The ACL of znodes made through this client."""
        return list(self.default_acl or ())

    @property
    def credentials(self) -> Credentials | None:
        """Of the session at hand, connected or not; ``None`` when there is none."""
        session_id, password = session_id_and_password(self)
        return Credentials(session_id, password) if session_id else None

    def is_connection_thread(self) -> bool:
        """Whether the caller runs on the thread that alone can bring answers."""
        return threading.current_thread() is self.connection.thread

    def complete(self, job: Callable[[], object]) -> None:
        """Run ``job`` on the completion thread."""
        self.handler.complete(job)

    def watch(self, job: Callable[[], object]) -> None:
        """Run ``job`` on the thread of watches."""
        self.handler.watch(job)

    def submit(self, request: Request, reply: Any) -> None:
        """Send ``request``, or fail ``reply`` at once if there is no connection. Never blocks."""
        with self._accepting:
            if is_accepted := self._accepts_requests:
                requests = request_queue(self)
                requests.append((request, reply))
                is_first = len(requests) == 1
        if not is_accepted:
            reply.set_exception(NotSent())
        elif is_first:  # else the connection thread is awake, and looks until the queue is empty
            self.connection.wake()

    def drop(self) -> None:
        """Break the connection; the session is taken up again through the next server."""
        self.connection.drop()

    def open(self) -> threading.Event:
        """Start connecting, for as long as it takes; the event is set while connected."""
        return self.start_async()

    def finish(self, *, timeout_s: float) -> bool:
        """Close the session if a server can be told within ``timeout_s``, and let go of all threads
        and sockets.

        Returns whether the server confirmed the end. A thread that does not end in time is told to
        when it wakes; it is never joined without a bound. May be called more than once and from any
        thread.
        """
        deadline = monotonic() + timeout_s
        with self._accepting:
            was_connected, self._accepts_requests = self._accepts_requests, False
        stop_flag(self).set()
        if was_connected and not self.ended.is_set() and not self.is_connection_thread():
            self.connection.close_session()
            self.ended.wait(max(0.0, deadline - monotonic()))
        if not self.ended.is_set():
            self.drop()
        self._release(max(0.3, deadline - monotonic()))
        return self.connection.is_session_closed

    def _release(self, timeout_s: float) -> None:
        deadline = monotonic() + timeout_s
        thread = self.connection.thread
        if thread is not None and not self.is_connection_thread():
            thread.join(timeout_s)
        self._fail_pending()
        self.handler.stop(timeout_s=max(0.1, deadline - monotonic()))
        self.connection.release_when_ended()

    # -- kazoo's own ways, guarded ------------------------------------------------------------------

    def _call(self, request: Any, async_object: Any) -> None:
        self.submit(request, async_object)

    def _session_callback(self, state: str) -> None:
        # Requests are refused before kazoo answers what is queued, and accepted before anyone hears
        # of the connection: so nothing is left in the queue to be sent by surprise after a
        # reconnection, and no lock is held while listeners run.
        if state == KeeperState.AUTH_FAILED:
            self.auth_failed = True
        with self._accepting:
            self._accepts_requests = state in _OPEN_STATES
        if state == KeeperState.CONNECTING:
            # These never went out, which is more than kazoo's "connection loss" tells.
            _fail_all(request_queue(self), NotSent())
        super()._session_callback(state)

    def _fail_pending(self) -> None:
        """Answer all requests, from whatever thread; for a client whose own thread cannot."""
        _fail_all(request_queue(self), NotSent())
        _fail_all(requests_in_flight(self), ConnectionLoss())


def _fail_all(waiting: deque[Any], exc: Exception) -> None:
    while True:
        try:
            entry = waiting.popleft()
        except IndexError:
            return
        if entry[1] is not None:
            entry[1].set_exception(exc)
