"""The connection of one kazoo client to one server: kazoo's handler, made to notice, to hurry and to keep secrets.

Runs on the connection thread only, but for ``drop`` and the attributes said to be readable anywhere. What it adds to kazoo:

* a connection in use is found dead too (see :class:`Liveness`);
* connecting to one server takes at most T/(3 x addresses), so a dead one leaves time for the others;
* all that is queued goes out in one write, and all that has arrived is read in one go;
* persistent watches are routed to whoever set them, beside kazoo's one-shot watches;
* its end, for whatever reason, is reported once (``on_end``): a client never dies unseen.
"""

from __future__ import annotations

import logging
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, Any

from kazoo.exceptions import ConnectionDropped
from kazoo.protocol.connection import AUTH_XID, CLOSE_RESPONSE, ConnectionHandler
from kazoo.protocol.serialization import Auth, Connect, Watch

if TYPE_CHECKING:
    from leaderq.zookeeper.client import Client
from dataclasses import dataclass


@dataclass(slots=True)
class Liveness:
    """When a connection counts as dead; pure. Times in monotonic seconds; one per connection to a server.

    kazoo looks at its pings only when its select call returns nothing, so a connection in steady use is never found dead
    (20 s of a frozen server without a change of state, measured). The rule here is Java's, made safe against our own stops: a
    peer is silent if nothing was heard for 2T/3 **and** something has been waiting for its answer for T/3. The second half
    spares a peer which we gave no time, having been stopped ourselves (SIGSTOP, a C call that kept the GIL) with nothing
    asked.
    """

    timeout_s: float
    heard_s: float
    waiting_since_s: float | None = None

    def sent(self, now: float) -> None:
        """Something went out that must be answered."""
        if self.waiting_since_s is None:
            self.waiting_since_s = now

    def heard(self, now: float, *, still_waiting: bool) -> None:
        """Something came in; ``still_waiting`` for answers to other requests or not."""
        self.heard_s = now
        self.waiting_since_s = now if still_waiting else None

    def is_dead(self, now: float) -> bool:
        """Whether the peer must be given up."""
        if self.waiting_since_s is None:
            return False
        return now - self.heard_s > self.limit_s and now - self.waiting_since_s > self.timeout_s / 3

    @property
    def limit_s(self) -> float:
        """How long one connection may be silent: T/3 is left to reach another server before the session expires."""
        return self.timeout_s * 2 / 3


log = logging.getLogger(__name__)
_INT = struct.Struct("!i")
_HEAD = struct.Struct("!iii")  # length, xid, type
_CHUNK = 1 << 16
CEILING_S = 10.0
"""Most time one server gets to accept, however long the session time-out is."""
FLOOR_S = 0.5
"""Least time one server gets to accept: below it a TLS handshake across continents fails, and a busy server looks dead."""


def connect_limit_s(timeout_s: float, addresses: int) -> float:
    """How long one server may take for each step of connecting: all of them are tried within about T/3."""
    return max(FLOOR_S, min(CEILING_S, timeout_s / (3 * max(1, addresses))))


class ServerConnection(ConnectionHandler):
    """See the module. ``attempts`` and ``timeout_s`` (negotiated) may be read from any thread."""

    client: Client

    def __init__(
        self,
        client: Client,
        *,
        retry: Any,
        logger: Any,
        sasl_options: dict[str, Any] | None,
        on_event: Callable[[int, str], None],
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(client, retry, logger=logger, sasl_options=sasl_options)
        self.attempts = 0
        self.timeout_s: float = client.requested_timeout_s
        self.resolved: list[tuple[str, str, int]] = []
        self._on_event = on_event
        self._on_end = on_end
        self._liveness = Liveness(self.timeout_s, monotonic())
        self._connecting = True
        self._buffer = bytearray()
        self.is_session_closed = False
        self._abandoned = threading.Event()
        self._releasing = threading.Lock()

    # -- connecting -----------------------------------------------------------------------------------------------------

    def zk_loop(self) -> None:
        try:
            super().zk_loop()
        except Exception:
            log.exception("the connection thread failed; the session gets a new client")
        finally:
            self._on_end()
            if self._abandoned.is_set():
                self._release()

    def _expand_client_hosts(self) -> list[tuple[str, str, int]]:
        self.attempts += 1
        # Without name servers the addresses that served before are better than none.
        self.resolved = super()._expand_client_hosts() or self.resolved
        return self.resolved

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        self.attempts += 1
        self._connecting = True
        self._buffer.clear()
        # A request never waits for a connection (Client refuses it), so a byte left from the last one wakes nobody.
        self._drain_wakeups()
        limits: tuple[float, float] = super()._connect(host, hostip, port)
        self._liveness = Liveness(self.timeout_s, monotonic())
        self._connecting = False
        if (
            self.client._stopped.is_set()
        ):  # meanwhile; kazoo would serve this connection for ever, and the session would live on
            self.client.ask_to_close()
        return limits

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect) and answer[0].time_out > 0:
            self.timeout_s = answer[0].time_out / 1000.0
        return answer

    def connect_limit(self) -> float:
        """Seconds that one step of connecting may take."""
        return connect_limit_s(self.timeout_s, len(self.resolved) or len(self.client.hosts))

    def _capped(self, timeout: float) -> float:
        return min(timeout, self.connect_limit() if self._connecting else self._liveness.limit_s)

    # -- bytes ----------------------------------------------------------------------------------------------------------

    def _write(self, msg: bytes | bytearray, timeout: float) -> None:
        super()._write(msg, self._capped(timeout))

    def _read(self, length: int, timeout: float) -> bytes:
        buffer = self._buffer
        while len(buffer) < length:
            with self._socket_error_handling():
                self._receive(self._capped(timeout))
        wanted = bytes(buffer[:length])
        del buffer[:length]
        return wanted

    def _receive(self, timeout: float) -> None:
        sock = self._socket
        if not self._has_decrypted() and not self.handler.select([sock], [], [], timeout)[0]:
            raise self.handler.timeout_exception("no answer from the server in time")
        try:
            chunk = sock.recv(_CHUNK)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            return
        if not chunk:
            raise ConnectionDropped("the server closed the connection")
        self._buffer += chunk

    def _has_decrypted(self) -> bool:
        return isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0

    def _has_message(self) -> bool:
        """Whether another reply is here already, for which no select would wake us."""
        buffer = self._buffer
        if len(buffer) >= 4 and len(buffer) >= 4 + _INT.unpack_from(buffer)[0]:
            return True
        return self._has_decrypted()

    # -- the loop's hooks -----------------------------------------------------------------------------------------------

    def _read_socket(self, read_timeout: float) -> Any:
        while True:
            response = super()._read_socket(read_timeout)
            waiting = bool(self.client._pending) or self.ping_outstanding.is_set()
            self._liveness.heard(monotonic(), still_waiting=waiting)
            if response == CLOSE_RESPONSE:
                self.is_session_closed = True
                return response
            if not self._has_message():
                return response

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        self._drain_wakeups()
        self._drop_if_silent()
        client = self.client
        frames: list[bytes] = []
        size = 0
        while client._queue and size < _CHUNK:
            request, reply = client._queue.popleft()
            try:
                body = request.serialize()
            except Exception as exc:  # noqa: BLE001 - it must reach whoever asked, and must not end this thread
                reply.set_exception(exc)
                continue
            if request.type == Auth.type:
                xid = AUTH_XID
            else:
                xid = self._xid = (self._xid % 2147483647) + 1
            # Before the write: if that fails, the request's outcome is unknown, and whoever asked must hear so.
            client._pending.append((request, reply, xid))
            frames += (_HEAD.pack(len(body) + 8, xid, request.type), body)
            size += len(body)
        if frames:
            self._liveness.sent(monotonic())
            self._write(b"".join(frames), connect_timeout)
        if client._queue:
            client.wake()

    def _send_ping(self, connect_timeout: float) -> None:
        self._liveness.sent(monotonic())
        super()._send_ping(connect_timeout)

    def _drain_wakeups(self) -> None:
        try:
            while len(self._read_sock.recv(4096)) == 4096:
                pass
        except (BlockingIOError, InterruptedError):
            pass

    def _drop_if_silent(self) -> None:
        # What has arrived unread is not silence: we may have been stopped ourselves while it came.
        if self._liveness.is_dead(monotonic()) and not self.handler.select([self._socket], [], [], 0)[0]:
            raise ConnectionDropped(
                f"the server has been silent for more than {self._liveness.limit_s:.1f} s, with requests waiting"
            )

    def _read_watch_event(self, buffer: bytes, offset: int) -> None:
        event, _ = Watch.deserialize(buffer, offset)
        if self.client._stopped.is_set() or event.type not in (1, 2, 3, 4):
            return
        self._on_event(event.type, event.path)
        super()._read_watch_event(buffer, offset)

    # -- from any thread ------------------------------------------------------------------------------------------------

    def drop(self) -> None:
        """Shut the socket: the loop wakes, finds the connection gone and connects again with the same session."""
        shut(self._socket)

    def release_when_ended(self) -> None:
        """Close the wake-up pipe: now if the thread has ended, else when it does, since it may be waiting on that very
        number."""
        self._abandoned.set()
        if self.connection_stopped.is_set():
            self._release()

    def _release(self) -> None:
        with self._releasing:
            if not self.connection_closed.is_set():
                self.close()


def shut(sock: Any) -> None:
    """End a socket's traffic without closing it, since another thread is using its number."""
    if sock is not None:
        try:
            sock.shutdown(socket.SHUT_RDWR)
        except (OSError, ValueError):
            log.debug("the connection to drop had ended by itself")
