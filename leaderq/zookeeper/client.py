"""One kazoo client with one session after another, whose every wait is bounded. Used by ``Session`` only.

kazoo's ``stop`` may wait for ever, its ``restart`` may close the new session, and its ``_call`` queues silently while
there is no connection and blocks when its wake-up pipe is full. None of the three is used: requests pass a gate that is
open exactly while connected, and ``finish`` ends the client within its budget, leaving to the threads what they still
hold.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.protocol.serialization import CloseInstance
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import ACL

from leaderq.zookeeper.address import Address
from leaderq.zookeeper.connection import Connection
from leaderq.zookeeper.journal import TransportJournal
from leaderq.zookeeper.security import Security
from leaderq.zookeeper.state import Credentials
from leaderq.zookeeper.translation import NotSent
from leaderq.zookeeper.transport import Transport
from leaderq.zookeeper.wire import Request

_OPEN_STATES = (KeeperState.CONNECTED, KeeperState.CONNECTED_RO)


class Client(KazooClient):
    """See the module. ``on_state`` and ``on_event`` run on the connection thread and must return at once."""

    _connection: Connection
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
        self.requested_timeout_s = timeout_s
        self.journal = TransportJournal(label)
        self.auth_failed = False
        self.ended = threading.Event()
        self._gate = threading.Lock()
        self._gate_open = False
        super().__init__(
            hosts=str(address),
            timeout=timeout_s,
            client_id=None if credentials is None else (credentials.session_id, credentials.password),
            handler=Transport(label, connect_limit=self._connect_limit, tls=security.ssl_context()),
            default_acl=security.acl(),
            auth_data=security.auth_data(),
            # kazoo's own default doubles the pause between attempts up to an hour.
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, max_delay=1),
            logger=self.journal,
            use_ssl=security.uses_tls,
        )
        self._connection = Connection(
            self,
            retry=self._conn_retry.copy(),
            logger=self.journal,
            sasl_options=security.sasl_options(),
            on_event=on_event,
            on_end=lambda: self._has_ended(on_end),
        )
        self.add_listener(lambda state: on_state(self, state))

    def _connect_limit(self) -> float:
        return self._connection.connect_limit()

    def _has_ended(self, on_end: Callable[[Client], None]) -> None:
        with self._gate:
            self._gate_open = False
        self.fail_pending(ConnectionLoss())
        self.ended.set()
        on_end(self)

    # -- what a session asks ---------------------------------------------------------------------------------------------

    @property
    def timeout_s(self) -> float:
        """The negotiated session time-out; the requested one before the first connection."""
        return self._connection.timeout_s

    @property
    def attempts(self) -> int:
        """Grows with every attempt to connect."""
        return self._connection.attempts

    @property
    def resolved(self) -> list[tuple[str, int]]:
        """The numeric addresses of the servers, as last resolved."""
        return [(ip, port) for _, ip, port in self._connection.resolved]

    @property
    def acl(self) -> list[ACL]:
        """The ACL of znodes made through this client."""
        return list(self.default_acl or ())

    @property
    def credentials(self) -> Credentials | None:
        """Of the session at hand, connected or not; ``None`` when there is none."""
        session_id = self._session_id
        return Credentials(session_id, bytes(self._session_passwd)) if session_id else None

    def is_connection_thread(self) -> bool:
        """Whether the caller runs on the thread that alone can bring answers."""
        return threading.current_thread() is self._connection._connection_routine

    def complete(self, job: Callable[[], object]) -> None:
        """Run ``job`` on the completion thread."""
        self.handler.complete(job)

    def watch(self, job: Callable[[], object]) -> None:
        """Run ``job`` on the thread of watches."""
        self.handler.watch(job)

    def submit(self, request: Request, reply: Any) -> None:
        """Send ``request``, or fail ``reply`` at once if there is no connection. Never blocks."""
        self._call(request, reply)

    def drop(self) -> None:
        """Break the connection; the session is taken up again through the next server."""
        self._connection.drop()

    # -- kazoo's own ways, guarded ---------------------------------------------------------------------------------------

    def _call(self, request: Any, async_object: Any) -> bool:
        with self._gate:
            if is_open := self._gate_open:
                self._queue.append((request, async_object))
                is_first = len(self._queue) == 1
        if not is_open:
            async_object.set_exception(NotSent())
        elif is_first:  # otherwise the connection thread is awake, and looks again until the queue is empty
            self.wake()
        return is_open

    def wake(self) -> None:
        """Let the connection thread look at its queue."""
        sock = self._connection._write_sock
        try:
            if sock is not None:
                sock.send(b"\0")
        except (
            OSError
        ):  # a full pipe wakes as well; a closed one means that the client has ended, which answers all requests
            pass

    def _session_callback(self, state: str) -> None:
        # The gate closes before kazoo answers what is queued, and opens before anyone hears of the connection: so nothing is
        # left in the queue to be sent by surprise after a reconnection, and no lock is held while listeners run.
        if state == KeeperState.AUTH_FAILED:
            self.auth_failed = True
        with self._gate:
            self._gate_open = state in _OPEN_STATES
        if state == KeeperState.CONNECTING:
            _fail(self._queue, NotSent())  # these never went out, which is more than kazoo's "connection loss" tells
        super()._session_callback(state)

    def fail_pending(self, exc: Exception) -> None:
        """Answer everything in flight with ``exc``, from whatever thread; for a client whose own thread cannot."""
        _fail(self._queue, NotSent())
        _fail(self._pending, exc)

    def open(self) -> None:
        """Start connecting, for as long as it takes."""
        self.start_async()

    def finish(self, *, timeout_s: float) -> bool:
        """Close the session if a server can be told within ``timeout_s``, and let go of all threads and sockets.

        Returns whether the server confirmed the end. A thread that does not end in time is told to when it wakes; it is
        never joined without a bound. May be called more than once and from any thread.
        """
        deadline = monotonic() + timeout_s
        with self._gate:
            was_open, self._gate_open = self._gate_open, False
        self._stopped.set()
        if was_open and not self.ended.is_set() and not self.is_connection_thread():
            self.ask_to_close()
            self.ended.wait(max(0.0, deadline - monotonic()))
        if not self.ended.is_set():
            self.drop()
        self._release(max(0.3, deadline - monotonic()))
        return self._connection.is_session_closed

    def ask_to_close(self) -> None:
        """Queue the request that ends the session, past the gate."""
        self._queue.append((CloseInstance, None))
        self.wake()

    def _release(self, timeout_s: float) -> None:
        deadline = monotonic() + timeout_s
        thread = self._connection._connection_routine
        if thread is not None and not self.is_connection_thread():
            thread.join(timeout_s)
        self.fail_pending(ConnectionLoss())
        self.handler.stop(timeout_s=max(0.1, deadline - monotonic()))
        self._connection.release_when_ended()


def _fail(waiting: deque[Any], exc: Exception) -> None:
    while True:
        try:
            entry = waiting.popleft()
        except IndexError:
            return
        if entry[1] is not None:
            entry[1].set_exception(exc)
