"""One kazoo client with one session after another, whose every wait is bounded. Used by ``Session`` only.

kazoo's ``stop`` may wait for ever, its ``restart`` may close the new session, and its ``_call`` queues silently while
there is no connection and blocks when its wake-up pipe is full. None of the three is used: requests pass a gate that is
open exactly while connected, and ``finish`` ends the client within its budget, leaving to the threads what they still
hold.
"""

from __future__ import annotations

import logging
import queue
import select
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic
from typing import Any, ClassVar

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionLoss
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.serialization import CloseInstance
from kazoo.protocol.states import KeeperState
from kazoo.retry import KazooRetry
from kazoo.security import ACL

from leaderq.zookeeper.connection import ServerConnection
from leaderq.zookeeper.paths import Address
from leaderq.zookeeper.security import Credentials, Security
from leaderq.zookeeper.translation import NotSent
from leaderq.zookeeper.wire import Request

log = logging.getLogger(__name__)
_kazoo_log = logging.getLogger("leaderq.zookeeper.kazoo")


class KazooLog:
    """Stands in for the ``logging.Logger`` of one kazoo client: quietens it, and strips it of secrets.

    kazoo logs session passwords (level 5), ``addauth`` credentials and data (DEBUG), and a line or two per attempt while
    servers are away. A session says itself, once, what changed; so of kazoo's lines only errors keep their level, warnings
    and news become DEBUG, and everything below is dropped before it is formatted. ``trouble`` is the newest warning, for our
    error messages.
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
        _kazoo_log.debug("%s: " + message, self._label, *args)

    def warning(self, message: str, *args: Any, **kwargs: Any) -> None:
        self.trouble = message % args if args else message
        _kazoo_log.debug("%s: %s", self._label, self.trouble)

    warn = warning

    def error(self, message: str, *args: Any, **kwargs: Any) -> None:
        _kazoo_log.error("%s: " + message, self._label, *args)

    def exception(self, message: str, *args: Any, **kwargs: Any) -> None:
        # kazoo's arguments may hold a request, and with it data; the traceback says enough.
        _kazoo_log.error("%s: kazoo failed: %s", self._label, message.partition(":")[0], exc_info=True)


_POLL_IN = select.POLLIN | select.POLLPRI | select.POLLHUP | select.POLLERR
_POLL_OUT = select.POLLOUT | select.POLLHUP | select.POLLERR


class Transport(SequentialThreadingHandler):
    """Threads and sockets for one kazoo client: kazoo's threading handler with every wait bounded.

    What differs from ``SequentialThreadingHandler``: ``stop`` joins for a bounded time and runs nothing at exit of the
    process; threads carry the session's name; one dead host costs a part of the session time-out instead of all of it
    (``connect_limit`` says, in seconds, how long one server may take to accept); a wait on sockets is one ``poll`` instead of
    an epoll set made and closed each time; TLS settings are read once, and a failed handshake leaks no socket.
    """

    name = "leaderq"
    queue_impl: ClassVar[type[Any]] = queue.SimpleQueue

    def __init__(self, label: str, *, connect_limit: Callable[[], float], tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._label = label
        self._connect_limit = connect_limit
        self._tls = tls

    def start(self) -> None:
        with self._state_change:
            if self._running:
                return
            self._running = True
            for jobs, duty in ((self.completion_queue, "answers"), (self.callback_queue, "watches")):
                thread = threading.Thread(target=_work, args=(jobs,), name=f"{self._label}-{duty}", daemon=True)
                thread.start()
                self._workers.append(thread)

    def stop(self, timeout_s: float = 1.0) -> None:
        """End the workers after what is queued; never waits longer than ``timeout_s`` for a callback that blocks."""
        with self._state_change:
            if not self._running:
                return
            self._running = False
            workers, self._workers = self._workers, []
            self.completion_queue.put(None)
            self.callback_queue.put(None)
        deadline = monotonic() + timeout_s
        for worker in workers:
            if worker is not threading.current_thread():
                worker.join(max(0.0, deadline - monotonic()))
                if worker.is_alive():
                    log.warning("thread %s is held up by a callback; it is left behind", worker.name)

    def complete(self, job: Callable[[], object]) -> None:
        """Run ``job`` on the completion thread; at once, here, if that has ended."""
        with self._state_change:  # so that nothing is queued behind the end mark, where it would be lost
            if self._running:
                self.completion_queue.put(job)
                return
        _contained(job)

    def watch(self, job: Callable[[], object]) -> None:
        """Run ``job`` on the watch thread; not at all once the client is stopped."""
        self.callback_queue.put(job)

    def spawn(self, func: Callable[..., object], *args: Any, **kwargs: Any) -> threading.Thread:
        thread = threading.Thread(target=func, args=args, kwargs=kwargs, name=f"{self._label}-connection", daemon=True)
        thread.start()
        return thread

    def select(
        self, rlist: list[Any], wlist: list[Any], xlist: list[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        poller = select.poll()
        readers = {sock.fileno(): sock for sock in rlist}
        writers = {sock.fileno(): sock for sock in wlist}
        if min((*readers, *writers), default=-1) < 0:
            raise OSError("the socket is closed")  # kazoo makes a dropped connection of an OSError
        for fd in readers.keys() | writers.keys():
            poller.register(fd, (_POLL_IN if fd in readers else 0) | (_POLL_OUT if fd in writers else 0))
        ready = dict(poller.poll(None if timeout is None else max(0.0, timeout) * 1000))
        return (
            [sock for fd, sock in readers.items() if ready.get(fd, 0) & (_POLL_IN | select.POLLNVAL)],
            [sock for fd, sock in writers.items() if ready.get(fd, 0) & (_POLL_OUT | select.POLLNVAL)],
            [],
        )

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        """The wake-up pipe. Non-blocking: a full one must not hold up a caller, since its bytes say "wake" already."""
        ends = socket.socketpair()
        for end in ends:
            end.setblocking(False)
        return ends

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float | None = None, **_: Any
    ) -> socket.socket:
        limit = self._connect_limit()
        sock = socket.create_connection(address, limit if timeout is None else min(timeout, limit))
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return sock if self._tls is None else self._tls.wrap_socket(sock, server_hostname=hostname or address[0])
        except BaseException:
            sock.close()
            raise


def _work(jobs: queue.SimpleQueue[Callable[[], object] | None]) -> None:
    while (job := jobs.get()) is not None:
        _contained(job)
        del job  # or the last answer would be kept alive until the next one


def _contained(job: Callable[[], object]) -> None:
    try:
        job()
    except (Exception, SystemExit):  # neither may end the thread, on which all other callbacks depend
        log.exception("a callback raised; the session goes on")


_OPEN_STATES = (KeeperState.CONNECTED, KeeperState.CONNECTED_RO)


class Client(KazooClient):
    """See the module. ``on_state`` and ``on_event`` run on the connection thread and must return at once."""

    _connection: ServerConnection
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
        self.kazoo_log = KazooLog(label)
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
            logger=self.kazoo_log,
            use_ssl=security.uses_tls,
        )
        self._connection = ServerConnection(
            self,
            retry=self._conn_retry.copy(),
            logger=self.kazoo_log,
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
