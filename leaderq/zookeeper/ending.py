"""Ends the session of another process, so that fail-over after a crash takes milliseconds instead
of the session time-out.

A process that knows the id and password of a session may take the session up and close it; its
ephemeral znodes vanish at once. The calling thread does so with plain sockets, and starts no other
thread once the addresses are known (at its exit Python refuses to start one). Both requests go out
together as soon as a server accepts, and if that server is slow, the next one is tried as well.
With TLS or SASL a kazoo client does the same, somewhat slower; without them kazoo is not even
loaded.

The answer "no such session" counts as success: the session is over, or the password is wrong;
ZooKeeper does not tell which. Without an answer in time the result is ``False``, and the session
lives until it expires.
"""

from __future__ import annotations

import logging
import selectors
import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from leaderq.base import clock
from leaderq.threads import primitives
from leaderq.threads.waker import bounded_s
from leaderq.zookeeper.paths import Address, parsed_address
from leaderq.zookeeper.security import NO_SECURITY, Credentials, Security

log = logging.getLogger(__name__)
HEDGE_S = 0.1
"""How long a server may be slow before the next is asked as well."""
ROUND_S = 1.0
"""How long all servers together may be silent before they are asked again."""
_CONNECT = struct.Struct("!iqiqi")
_CONNECTED = struct.Struct("!ii")
_INT = struct.Struct("!i")
_LEAST, _MOST = 16, 1 << 16
"""How long an answer to these two requests, or a watch event in between, may be."""
_CLOSE_XID = 1
_CLOSE_FRAME = struct.pack("!iii", 8, _CLOSE_XID, -11)


_Endpoint = tuple[int, tuple[object, ...]]
"""A server's address family and address."""


class SessionEnder:
    """Ends sessions at one address. Make it early, so that little is left to do when it is needed.

    :raises ConfigurationError: a malformed address, or unusable security.
    """

    def __init__(self, address: str | Address, *, security: Security | None = None) -> None:
        self._address = parsed_address(address) if isinstance(address, str) else address
        self._security = security or NO_SECURITY
        self._security.validate()
        self._tls = self._security.ssl_context()
        self._endpoints: Sequence[_Endpoint] = ()
        self._resolving: primitives.Thread | None = None

    def know(self, addresses: Iterable[tuple[str, int]]) -> None:
        """Use these numeric addresses, which somebody else has resolved. An empty list changes
        nothing.
        """
        families = {True: socket.AF_INET6, False: socket.AF_INET}
        known = [(families[":" in ip], (ip, port)) for ip, port in addresses]
        self._endpoints = known or self._endpoints

    def end(
        self,
        credentials: Credentials,
        *,
        timeout_s: float,
        session_timeout_s: float = 10.0,
        patient: bool = True,
    ) -> bool:
        """End the session; return within ``timeout_s`` seconds whether it is certainly over.

        To close a session, this takes it up first. ``session_timeout_s``: how many seconds the
        session lives on if it was taken up, but could not be closed. Without ``patient`` each
        server is asked only once.
        """
        deadline = clock.awake_s() + bounded_s(timeout_s)
        needs_kazoo = self._security.uses_tls or self._security.uses_sasl
        ask = self._ask_kazoo if needs_kazoo else self._ask
        while True:
            is_over = ask(credentials, deadline, session_timeout_s)
            left_s = deadline - clock.awake_s()
            if is_over or left_s <= 0 or not patient:
                return is_over
            # No server answered; or the owner, alive, took it back before we could close it, which
            # within an authentication by SASL looks as if we were refused.
            clock.sleep(min(HEDGE_S / 2, left_s))

    def _resolve(self) -> None:
        self._endpoints = list(_resolved(self._address)) or self._endpoints

    def _ask(self, known: Credentials, deadline: float, session_timeout_s: float) -> bool:
        if not self._endpoints:
            if self._resolving is None or not self._resolving.is_alive():
                name = "leaderq-ender-resolver"
                self._resolving = primitives.Thread(target=self._resolve, name=name, daemon=True)
                self._resolving.start()
            self._resolving.join(max(0.0, deadline - clock.awake_s()))
        password, timeout_ms = known.password, int(session_timeout_s * 1000)
        body = _CONNECT.pack(0, 0, timeout_ms, known.session_id, len(password)) + password + b"\0"
        frames = _INT.pack(len(body)) + body + _CLOSE_FRAME
        return _ask_all(self._endpoints, frames, min(deadline, clock.awake_s() + ROUND_S))

    def _ask_kazoo(self, known: Credentials, deadline: float, session_timeout_s: float) -> bool:
        from leaderq.zookeeper.client import Client

        has_begun = primitives.Event()
        client = Client(
            self._address,
            timeout_s=session_timeout_s,
            security=self._security,
            label="leaderq-ender",
            tls=self._tls,
            on_state=lambda *_: has_begun.set(),
            on_event=lambda *_: None,
            on_end=has_begun.set,  # it was refused, and never connects
            credentials=known,
        )
        client.start_async()
        has_begun.wait(max(0.0, deadline - clock.awake_s()))
        found = client.credentials
        # If the session was gone kazoo has begun another by now, which is closed as well.
        is_another = found is not None and found.session_id != known.session_id
        was_gone = client.connected and is_another
        return client.finish(timeout_s=max(0.1, deadline - clock.awake_s())) or was_gone


def end_session(
    address: str,
    credentials: Credentials,
    *,
    timeout_s: float = 5.0,
    security: Security | None = None,
) -> bool:
    """End the session of another process, which may be dead or alive: the session's ephemeral
    znodes vanish within milliseconds, and the next request of a live owner fails.

    Returns whether the session is certainly over; ``False`` if no server answered within
    ``timeout_s`` seconds.
    """
    return SessionEnder(address, security=security).end(credentials, timeout_s=timeout_s)


def _resolved(address: Address) -> Iterator[_Endpoint]:
    for host, port in address.servers:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except OSError as exc:
            log.warning("ZooKeeper server not resolved host=%s reason=%s", host, exc)
            continue
        yield from dict.fromkeys((family, where) for family, _, _, _, where in found)


def _says_over(answers: bytearray) -> bool:
    """Whether the bytes that a server has answered so far say that the session is over; pure.

    Raises ``ConnectionAbortedError`` if they cannot come from a ZooKeeper server.
    """
    begin = 0
    while len(answers) >= begin + 4:
        size = _INT.unpack_from(answers, begin)[0]
        if not _LEAST <= size <= _MOST:
            raise ConnectionAbortedError(f"an answer of {size} bytes is not of a ZooKeeper server")
        end = begin + 4 + size
        if len(answers) < end:
            break
        if begin == 0:
            if _CONNECTED.unpack_from(answers, 4)[1] <= 0:
                return True  # no such session
        elif _INT.unpack_from(answers, begin + 4)[0] == _CLOSE_XID:
            return True
        begin = end
    return False


class _Attempt(NamedTuple):
    """A request to one server to end the session: the bytes to send, and the answer so far."""

    sock: socket.socket
    frames: bytes
    answers: bytearray


def _ask_all(endpoints: Sequence[_Endpoint], frames: bytes, deadline: float) -> bool:
    waiting, next_at = list(endpoints), clock.awake_s()
    with selectors.PollSelector() as selector:  # takes no file descriptor of its own
        try:
            while waiting or selector.get_map():
                now = clock.awake_s()
                if now >= deadline:
                    return False
                if waiting and (now >= next_at or not selector.get_map()):
                    _begin(selector, waiting.pop(0), frames)
                    next_at = now + HEDGE_S
                    continue
                until = min(deadline, next_at) if waiting else deadline
                for key, events in selector.select(max(0.0, until - now)):
                    if _advance(selector, key.data, events):
                        return True
            return False
        finally:
            for key in list(selector.get_map().values()):
                key.data.sock.close()


def _begin(selector: selectors.BaseSelector, endpoint: _Endpoint, frames: bytes) -> None:
    family, address = endpoint
    try:
        sock = socket.socket(family, socket.SOCK_STREAM)
    except OSError as exc:
        log.debug("ZooKeeper server unusable address=%s reason=%s", address, exc)
        return
    selector.register(sock, selectors.EVENT_WRITE, _Attempt(sock, frames, bytearray()))
    with suppress(OSError):  # the selector will announce its failure, as its success
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.connect_ex(address)


def _advance(selector: selectors.BaseSelector, attempt: _Attempt, events: int) -> bool:
    """Send or receive what the socket allows now; return whether the session is over."""
    sock, frames, answers = attempt
    try:
        if events & selectors.EVENT_WRITE:
            sock.sendall(frames)  # they fit into the empty buffer of a new connection
            selector.modify(sock, selectors.EVENT_READ, attempt)
            return False
        if not (chunk := sock.recv(4096)):
            raise ConnectionAbortedError("the server closed the connection without an answer")
        answers += chunk
        return _says_over(answers)
    except BlockingIOError:
        return False
    except OSError as exc:
        log.debug("ZooKeeper server unusable reason=%s", exc)
        selector.unregister(sock)
        sock.close()
        return False
