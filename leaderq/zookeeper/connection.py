"""The threads, the sockets and the connection of one kazoo client: kazoo's own classes, changed so
that they notice a dead server and connect sooner.

A :class:`ServerConnection` runs on the connection thread only, except ``drop``, ``close_session``,
``release_when_ended`` and the attributes that its docstring names. What it adds to kazoo's handler
of a connection:

* a dead connection is noticed even while it is in use (see :class:`Liveness`);
* connecting to one server takes at most T/(3 x addresses): a dead one leaves time for the others;
* all that is queued goes out in one write, and all that has arrived is read in one go;
* persistent watches are routed to their holders, beside kazoo's one-shot watches;
* its end, for whatever reason, is reported once (``on_end``): a client never dies unseen.
"""

from __future__ import annotations

import logging
import queue
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, ClassVar

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import AUTH_XID, CLOSE_RESPONSE, WATCH_XID, ConnectionHandler
from kazoo.protocol.serialization import Auth, CloseInstance, Connect

from leaderq.base import clock
from leaderq.threads.listeners import is_from_outside
from leaderq.zookeeper import private_api
from leaderq.zookeeper.proof import NEVER, Echoes, shares_of

log = logging.getLogger(__name__)
_INT = struct.Struct("!i")
_HEAD = struct.Struct("!iii")  # length, xid, type
_REPLY = struct.Struct("!iiqi")  # length, xid, zxid, error
_EVENT = struct.Struct("!iii")  # type, state, length of the path
_CHUNK = 1 << 16
_MAX_XID = 2147483647
CONNECT_CEILING_S = 10.0
"""Most time one server gets to accept, however long the session time-out is."""
CONNECT_FLOOR_S = 0.5
"""Least time: below it distant TLS handshakes fail, and a busy server looks dead."""


def connect_limit_s(timeout_s: float, addresses: int) -> float:
    """How many seconds one server may take for each step of connecting: all servers together can be
    tried within about T/3.
    """
    share_s = shares_of(timeout_s).answer_s / max(1, addresses)
    return max(CONNECT_FLOOR_S, min(CONNECT_CEILING_S, share_s))


@dataclass(slots=True)
class Liveness:
    """Decides when a connection counts as dead; pure. Each connection has its own object; all times
    are monotonic seconds.

    kazoo looks at its pings only when its select call returns nothing, so a connection in steady
    use is never found dead (20 s of a frozen server without a change of state, measured). The rule
    here is Java's, made safe against our own stops: a peer is dead if nothing was heard for 2T/3
    **and** something has been waiting for its answer for T/3. The second condition spares a peer if
    this process itself was stopped (SIGSTOP, a C call that kept the GIL) while no request was
    waiting.
    """

    timeout_s: float
    heard_s: float
    waiting_since_s: float | None = None

    def sent(self, now: float) -> None:
        """Note that a request was sent which must be answered."""
        if self.waiting_since_s is None:
            self.waiting_since_s = now

    def heard(self, now: float, *, still_waiting: bool) -> None:
        """Note that bytes came in; ``still_waiting``: whether other requests still wait for
        answers.
        """
        self.heard_s = now
        self.waiting_since_s = now if still_waiting else None

    def is_dead(self, now: float) -> bool:
        if self.waiting_since_s is None:
            return False
        answer_s = shares_of(self.timeout_s).answer_s
        return now - self.heard_s > self.limit_s and now - self.waiting_since_s > answer_s

    @property
    def limit_s(self) -> float:
        """How many seconds a server may be silent; T/3 is left to reach another one before the
        session ends.
        """
        return shares_of(self.timeout_s).silent_s


class Transport(SequentialThreadingHandler):
    """The threads and sockets of one kazoo client: kazoo's threading handler, with every wait
    bounded.

    ``stop`` waits for a bounded time, and nothing runs at the exit of the process. The names of the
    threads begin with ``label``. A server that does not accept costs ``limit_s()`` seconds instead
    of the session time-out. The wake-up pipe never blocks. TLS settings are read once, and a failed
    handshake leaks no socket.
    """

    name = "leaderq"
    queue_impl: ClassVar[type[Any]] = queue.SimpleQueue
    _wake_up: tuple[socket.socket, socket.socket]

    def __init__(
        self, label: str, limit_s: Callable[[], float], tls: ssl.SSLContext | None
    ) -> None:
        super().__init__()
        self._label = label
        self._limit_s = limit_s
        self._tls = tls
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self.is_waiting = False
        """Whether the connection thread waits for the server, with nothing in its hands."""

    @property
    def running(self) -> bool:
        return bool(self._threads)

    def start(self) -> None:
        with self._lock:
            if self._threads:
                return
            self._threads = [
                self._started(_run_jobs, (self.completion_queue,), "answers"),
                self._started(_run_jobs, (self.callback_queue,), "watches"),
            ]

    def spawn(self, func: Callable[..., object], *args: Any, **_: Any) -> threading.Thread:
        return self._started(func, args, "connection")

    def _started(self, target: Callable[..., object], args: Any, duty: str) -> threading.Thread:
        name = f"{self._label}-{duty}"
        thread = threading.Thread(target=target, args=args, name=name, daemon=True)
        thread.start()
        return thread

    def stop(self, timeout_s: float = 1.0) -> None:
        """End the threads when the queued jobs are done; wait for that at most ``timeout_s``
        seconds.
        """
        with self._lock:
            threads, self._threads = self._threads, []
            if threads:
                self.completion_queue.put(None)
                self.callback_queue.put(None)
        deadline = monotonic() + timeout_s
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - monotonic()))
                if thread.is_alive():
                    log.warning("thread blocked by a callback, left behind name=%s", thread.name)

    def complete(self, job: Callable[[], object]) -> None:
        """Run ``job`` on the completion thread; if that has ended, run it at once on this
        thread.
        """
        with self._lock:  # so that nothing is queued behind the end mark, where it would be lost
            if self._threads:
                self.completion_queue.put(job)
                return
        _contained(job)

    def watch(self, job: Callable[[], object]) -> None:
        """Run ``job`` on the watch thread; drop it if the client is stopped."""
        self.callback_queue.put(job)

    def create_socket_pair(self) -> tuple[socket.socket, socket.socket]:
        """Make the wake-up pipe. Writing to it never blocks: a full pipe wakes the thread
        as well.
        """
        self._wake_up = ends = socket.socketpair()
        for end in ends:
            end.setblocking(False)
        return ends

    def wake(self) -> None:
        """Wake the connection thread. Never blocks."""
        with suppress(OSError):  # full wakes as well; closed: all requests have been answered
            self._wake_up[1].send(b"\0")

    def drain(self) -> None:
        """Read and forget all wake-ups that have come so far."""
        with suppress(BlockingIOError):
            while len(self._wake_up[0].recv(4096)) == 4096:
                pass

    def select(
        self, readers: list[Any], writers: list[Any], _: list[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Do what kazoo's ``select`` does, which creates an epoll instance at each call, three
        times a request; this one uses ``poll``.
        """
        self.is_waiting = bool(readers)
        try:
            return _selected(readers, writers, timeout)
        finally:
            self.is_waiting = False

    def create_connection(
        self,
        address: tuple[str, int],
        hostname: str | None = None,
        timeout: float | None = None,
        **_: Any,
    ) -> socket.socket:
        limit = self._limit_s()
        sock = socket.create_connection(address, limit if timeout is None else min(timeout, limit))
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is None:
                return sock
            return self._tls.wrap_socket(sock, server_hostname=hostname or address[0])
        except BaseException:
            sock.close()
            raise


def _selected(
    readers: list[Any], writers: list[Any], timeout: float | None
) -> tuple[list[Any], list[Any], list[Any]]:
    poll = select.poll()
    for one in readers:
        poll.register(one, select.POLLIN)
    for one in writers:
        poll.register(one, select.POLLOUT)
    ready = dict(poll.poll(None if timeout is None else max(0.0, timeout * 1000)))
    readable = [one for one in readers if one.fileno() in ready]
    return readable, [one for one in writers if one.fileno() in ready], []


def _run_jobs(jobs: queue.SimpleQueue[Callable[[], object] | None]) -> None:
    while (job := jobs.get()) is not None:
        _contained(job)
        del job  # otherwise the last answer would be kept alive until the next one


def _contained(job: Callable[[], object]) -> None:
    try:
        job()
    except BaseException as error:  # none may end the thread: all other callbacks need it
        if is_from_outside(error):
            raise
        log.exception("callback failed, the session continues")


class ServerConnection(ConnectionHandler):
    """The connection of one client, to one server after another.

    Any thread may read: ``attempts`` (grows with every attempt to connect), ``timeout_s`` (the
    session time-out granted at the newest connection; before the first, the one asked for),
    ``resolved`` (host, address, port of each server), ``is_connecting`` (until the credentials are
    accepted), ``is_session_closed``, ``echoes`` of the newest connection.
    """

    handler: Transport

    def __init__(
        self,
        client: KazooClient,
        *,
        timeout_s: float,
        retry: Any,
        logger: Any,
        sasl_options: dict[str, Any] | None,
        on_authenticated: Callable[[], None],
        on_event: Callable[[int, str], object],
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(client, retry, logger=logger, sasl_options=sasl_options)
        self.attempts = 0
        self.timeout_s = timeout_s
        self.resolved: list[tuple[str, str, int]] = []
        self.is_connecting = True
        self.is_session_closed = False
        self._on_authenticated = on_authenticated
        self._on_event = on_event
        self._on_end = on_end
        self._liveness = Liveness(timeout_s, monotonic())
        self._received = bytearray()
        self._last_xid = 0
        self._is_abandoned = threading.Event()
        self._pings = 0  # that were not answered yet
        self.echoes = Echoes(NEVER, timeout_s)

    # -- connecting --------------------------------------------------------------------------------

    def zk_loop(self) -> None:
        try:
            super().zk_loop()
        except Exception:
            log.exception("connection thread failed, the session gets a new client")
        finally:
            self._on_end()
            if self._is_abandoned.is_set():
                self.close()

    def _expand_client_hosts(self) -> list[tuple[str, str, int]]:
        self.attempts += 1
        # Without name servers the addresses that served before are better than none.
        self.resolved = super()._expand_client_hosts() or self.resolved
        return self.resolved

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        self.attempts += 1
        self.is_connecting = True
        self._received.clear()
        self._last_xid = 0
        if monotonic() - self._liveness.heard_s > 2 * self.timeout_s:
            # Servers refuse whoever has seen more than they have, and emptied ones would for ever.
            # The session is over on all others, unless they stood still as long: then they have
            # agreed anew on all that was ever seen.
            self.client.last_zxid = 0
        # A request never waits for a connection (Client refuses it): a byte left over wakes nobody.
        self.handler.drain()
        began_s, self._pings = clock.now_s(), 0
        limits: tuple[float, float] = super()._connect(host, hostip, port)
        self._liveness = Liveness(self.timeout_s, monotonic())
        self.echoes = Echoes(began_s, self.timeout_s)
        self.is_connecting = False
        self._on_authenticated()
        if private_api.stop_flag(self.client).is_set():
            # Meanwhile closed; kazoo would serve this connection for ever, and the session would
            # live on.
            self.close_session()
        return limits

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect) and answer[0].time_out > 0:
            self.timeout_s = answer[0].time_out / 1000.0
        return answer

    def connect_limit_s(self) -> float:
        """How many seconds one step of connecting may take."""
        return connect_limit_s(self.timeout_s, len(self.resolved) or len(self.client.hosts))

    def _capped(self, timeout: float) -> float:
        limit_s = self.connect_limit_s() if self.is_connecting else self._liveness.limit_s
        return min(timeout, limit_s)

    # -- bytes -------------------------------------------------------------------------------------

    def _write(self, msg: bytes | bytearray, timeout: float) -> None:
        super()._write(msg, self._capped(timeout))

    def _read(self, length: int, timeout: float) -> bytes:
        received = self._received
        while len(received) < length:
            try:
                self._receive(self._capped(timeout))
            except OSError as exc:
                raise ConnectionDropped(f"reading failed: {exc}") from exc
        wanted = bytes(received[:length])
        del received[:length]
        return wanted

    def _receive(self, timeout: float) -> None:
        sock = private_api.server_socket(self)
        if not self._has_decrypted() and not self.handler.select([sock], [], [], timeout)[0]:
            raise self.handler.timeout_exception("no answer from the server in time")
        try:
            chunk = sock.recv(_CHUNK)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            return
        if not chunk:
            raise ConnectionDropped("the server closed the connection")
        self._received += chunk

    def _has_decrypted(self) -> bool:
        sock = private_api.server_socket(self)
        return isinstance(sock, ssl.SSLSocket) and sock.pending() > 0

    def _has_message(self) -> bool:
        """Whether another complete reply has been received already, so that no select would wake us
        for it.
        """
        received = self._received
        if len(received) >= 4 and len(received) >= 4 + _INT.unpack_from(received)[0]:
            return True
        return self._has_decrypted()

    # -- the hooks of kazoo's loop -----------------------------------------------------------------

    def _read_socket(self, read_timeout: float) -> Any:
        while True:
            is_pinging = self.ping_outstanding.is_set()
            response = super()._read_socket(read_timeout)
            self._read_watch_events()
            in_flight = private_api.requests_in_flight(self.client)
            self._pings -= is_pinging and not self.ping_outstanding.is_set()
            self.echoes.read(clock.now_s(), len(in_flight) + self._pings)
            if response == CLOSE_RESPONSE:
                self.is_session_closed = True
                return response
            if not self._has_message():
                break
        is_waiting = bool(in_flight) or self.ping_outstanding.is_set()
        self._liveness.heard(monotonic(), still_waiting=is_waiting)
        return response

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        self.handler.drain()
        self._drop_if_dead()
        queue = private_api.request_queue(self.client)
        in_flight = private_api.requests_in_flight(self.client)
        frames: list[bytes] = []
        size = 0
        while queue and size < _CHUNK:
            request, reply = queue.popleft()
            try:
                body = request.serialize()
            except Exception as exc:  # noqa: BLE001 - for the caller, not for this thread
                reply.set_exception(exc)
                continue
            if request.type == Auth.type:
                xid = AUTH_XID
            else:
                self._last_xid = xid = self._last_xid % _MAX_XID + 1
            # Before the write: if that fails the outcome is unknown, and must be told as such.
            in_flight.append((request, reply, xid))
            frames += (_HEAD.pack(len(body) + 8, xid, request.type), body)
            size += len(body)
        if frames:
            self._liveness.sent(monotonic())
            self.echoes.sent(clock.now_s(), len(frames) // 2)
            self._write(b"".join(frames), connect_timeout)
        if queue:
            self.handler.wake()

    def _send_ping(self, connect_timeout: float) -> None:
        self._liveness.sent(monotonic())
        self._pings += 1
        self.echoes.sent(clock.now_s())
        super()._send_ping(connect_timeout)

    def _drop_if_dead(self) -> None:
        # Unread bytes are not silence: this process may have been stopped while they came.
        if not self._liveness.is_dead(monotonic()):
            return
        if not self.handler.select([private_api.server_socket(self)], [], [], 0)[0]:
            silent_s = self._liveness.limit_s
            raise ConnectionDropped(f"no answer for {silent_s:.1f} s, with requests waiting")

    def _read_watch_events(self) -> None:
        """Read the events that come next in what has arrived, without all that is done for an
        answer: after an acknowledgement of many items there are as many of them.
        """
        received = self._received
        while len(received) >= _REPLY.size:
            size, xid, _, _ = _REPLY.unpack_from(received)
            if xid != WATCH_XID or len(received) < 4 + size:
                return
            event = bytes(received[: 4 + size])
            del received[: 4 + size]
            self._read_watch_event(event, _REPLY.size)

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        kind, _, size = _EVENT.unpack_from(buffer, offset)
        if private_api.stop_flag(self.client).is_set() or kind not in (1, 2, 3, 4):
            return
        offset += _EVENT.size
        path = buffer[offset : offset + size].decode()
        self._on_event(kind, path)
        # Few events are for one-shot watches, and many come: one for each item that is done.
        if private_api.has_one_shot_watch(self.client, path):
            super()._read_watch_event(buffer, offset - _EVENT.size)

    # -- from any thread ---------------------------------------------------------------------------

    def has_unread(self) -> bool:
        """Whether the server has sent something that the loop has not handled yet, such as the end
        of the session, for a host that was stopped together with its clocks.
        """
        if not self.handler.is_waiting:
            return True
        sock = private_api.server_socket(self)
        try:
            return sock is not None and bool(_selected([sock], [], 0)[0])
        except (OSError, ValueError):  # it is being closed
            return True

    def drop(self) -> None:
        """Break the connection. The loop notices that, and connects again with the same session."""
        sock = private_api.server_socket(self)
        with suppress(OSError, ValueError):  # it has ended by itself
            if sock is not None:
                sock.shutdown(socket.SHUT_RDWR)  # not closed: another thread is using its number

    def close_session(self) -> None:
        """Queue the request that ends the session. The server answers no request after it. Never
        blocks.
        """
        private_api.request_queue(self.client).append((CloseInstance, None))
        self.handler.wake()

    def release_when_ended(self) -> None:
        """Close the wake-up pipe; if the connection thread, which may wait on the pipe, has not
        ended, it closes the pipe at its end.
        """
        self._is_abandoned.set()
        if self.connection_stopped.is_set():
            self.close()
