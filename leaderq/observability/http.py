"""``leaderq run --http``: answers a few GET requests, whatever the clients do.

One thread reads, answers and writes; no client makes it wait. Its bounds:

* ``MOST_CONNECTIONS`` at a time. One more closes the oldest, so a host full of idle connections
  does not shut a probe out: that one is answered as soon as its request is there.
* ``MOST_BYTES`` of a request, then 431; ``WITHIN_S`` from the connection to its end, then closed.
* ``SHARE`` of one processor: after each step the thread rests, so that a flood of requests costs
  the career's threads, which share an interpreter with it, no more than that.

One request a connection, HTTP/1.0, parsed by the standard library. A body is not read. A route that
raises is logged and answered by 500. A route runs on this thread, except :class:`InBackground`.
"""

from __future__ import annotations

import io
import json
import logging
import selectors
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import quote

from leaderq.clock import now_s
from leaderq.errors import ConfigurationError
from leaderq.observability.health import Health, why_all_dead
from leaderq.threads.service import Service

log = logging.getLogger(__name__)

MOST_CONNECTIONS = 64
MOST_BYTES = 8192
WITHIN_S = 5.0
SHARE = 0.05
_STOP_S = 2.0
_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"
_TOO_LARGE = b"HTTP/1.0 431 Request Header Fields Too Large\r\nContent-Length: 0\r\n\r\n"


@dataclass(frozen=True)
class HttpReply:
    """What a route answers."""

    status: int
    body: str | bytes
    kind: str = _TEXT


Route = Callable[[], "HttpReply | None"]
"""Returns the answer; ``None``: it is asked again when there is one."""
Routes = Mapping[str, Route]


def health_routes(*careers: Health) -> Routes:
    """What :mod:`leaderq.observability.health` decides, under its paths: of all careers, and of
    each below its name.
    """
    routes = _routes("", careers)
    for health in careers:
        routes |= _routes("/" + quote(health.look().career), [health])
    return routes


def _routes(name: str, careers: Sequence[Health]) -> dict[str, Route]:
    return {
        f"/livez{name}": lambda: _probed("live", why_all_dead([one.look() for one in careers])),
        f"/readyz{name}": lambda: _probed("ready", _first(careers, Health.why_unready)),
        f"/leader{name}": lambda: _probed("leader", _first(careers, Health.why_no_leader)),
        f"/status{name}": lambda: HttpReply(
            200, json.dumps(_told(careers), indent=2) + "\n", _JSON
        ),
    }


def _first(careers: Sequence[Health], why: Callable[[Health], str | None]) -> str | None:
    """Why not all careers are so: what the first says that is not."""
    said = ((one.look().career, why(one)) for one in careers)
    told = (
        f"{career}: {reason}" if len(careers) > 1 else reason for career, reason in said if reason
    )
    return next(told, None)


def _told(careers: Sequence[Health]) -> dict[str, Any]:
    if len(careers) == 1:
        return careers[0].status()
    each = {one.look().career: one.status() for one in careers}
    live = why_all_dead([one.look() for one in careers]) is None
    of_all = {name: all(found[name] for found in each.values()) for name in ("ready", "leader")}
    return {"live": live, **of_all, "careers": each}


def _probed(word: str, why_not: str | None) -> HttpReply:
    if why_not is None:
        return HttpReply(200, word + "\n")
    return HttpReply(503, f"not {word}: {why_not}\n")


class HttpEndpoint:
    """Listens on ``address`` (``host:port``; port 0: a free one, which ``address`` then tells).

    :raises ConfigurationError: the address cannot be listened on.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        family = socket.AF_INET6 if host.startswith("[") else socket.AF_INET
        try:
            self._listener = socket.create_server(
                (host.strip("[]"), int(port)),
                family=family,
                backlog=MOST_CONNECTIONS,
                dualstack_ipv6=family == socket.AF_INET6 and socket.has_dualstack_ipv6(),
            )
        except OSError as exc:
            why = (exc.strerror or str(exc)).partition(" (")[0]
            what = f"http: {address!r} cannot be listened on: {why}"
            remedy = "choose a free port, and an address of this host"
            raise ConfigurationError(f"{what}; {remedy}") from exc
        self._listener.setblocking(False)
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self._routes: Routes = {}
        self._in_background: list[InBackground] = []
        self._clients: dict[_Client, None] = {}  # the oldest first
        self._selector: selectors.BaseSelector
        self._ready, self._tell_ready = socket.socketpair()
        self._tell_ready.setblocking(False)
        self._service = Service("leaderq-http", self._run)

    def start(self, routes: Routes) -> None:
        """Begin to answer what ``routes`` has for the path of a request."""
        self._routes = routes
        self._in_background = [one for one in routes.values() if isinstance(one, InBackground)]
        for route in self._in_background:
            route.start(self._wake)
        self._service.start()
        log.info("http endpoint listens address=%s", self.address)

    def stop(self) -> None:
        """Close all connections and the port. May be called twice, and without :meth:`start`."""
        for route in self._in_background:
            route.stop()
        self._service.stop(timeout_s=0.0)
        self._wake()
        self._service.stop(timeout_s=_STOP_S)
        with suppress(OSError):  # frees the port even if a forked child has a copy of the socket
            self._listener.shutdown(socket.SHUT_RDWR)
        for one in (self._listener, self._ready, self._tell_ready):
            one.close()

    def _wake(self) -> None:
        with suppress(OSError):  # full: it is awake; closed: it has ended
            self._tell_ready.send(b"x")

    def __enter__(self) -> HttpEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self, service: Service) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ, self._accept)
            selector.register(self._ready, selectors.EVENT_READ, self._resume)
            self._selector = selector
            while not service.is_stopping:
                for key, _events in selector.select(self._wait_s()):
                    began_s = time.thread_time()
                    key.data()
                    rest(service, began_s)
                for client in list(self._clients):
                    if client.until_s > now_s():
                        break
                    self._close(client)
            for client in list(self._clients):
                self._close(client)

    def _wait_s(self) -> float | None:
        oldest = next(iter(self._clients), None)
        return None if oldest is None else max(0.0, oldest.until_s - now_s())

    def _accept(self) -> None:
        try:
            connection, _peer = self._listener.accept()
        except OSError:
            return  # it was given up meanwhile, this process has no file left, or stop() came
        connection.setblocking(False)
        if len(self._clients) >= MOST_CONNECTIONS:
            self._close(next(iter(self._clients)))
        client = _Client(connection, now_s() + WITHIN_S)
        self._clients[client] = None
        self._go_on(client)

    def _resume(self) -> None:
        self._ready.recv(MOST_BYTES)
        for client in [one for one in self._clients if one.is_waiting]:
            self._go_on(client)
        for route in self._in_background:
            route.reply = None

    def _go_on(self, client: _Client) -> None:
        if client not in self._clients:
            return  # closed by an earlier event of the same look
        try:
            is_needed = client.go_on(self._routes)
        except OSError:
            is_needed = False
        if not is_needed:
            self._close(client)
        elif client.watched_for != (interest := client.interest):
            if client.watched_for:
                self._selector.unregister(client.socket)
            if interest:
                self._selector.register(client.socket, interest, lambda: self._go_on(client))
            client.watched_for = interest

    def _close(self, client: _Client) -> None:
        del self._clients[client]
        if client.watched_for:
            self._selector.unregister(client.socket)
        client.close()


def rest(service: Service, began_s: float) -> None:
    """Rest as long as a share of ``SHARE`` demands, after work since ``began_s`` of thread time."""
    service.pause((time.thread_time() - began_s) * (1 / SHARE - 1))


class InBackground:
    """A route that may wait, such as for a career's own collectors, on a thread of its own.

    One call at a time; its reply is for all that asked meanwhile.
    """

    def __init__(self, route: Callable[[], HttpReply]) -> None:
        self.reply: HttpReply | None = None
        self._route = route
        self._service = Service("leaderq-http-background", self._run)
        self._ready: Callable[[], object] = lambda: None

    def start(self, ready: Callable[[], object]) -> None:
        """Call ``ready`` whenever there is a reply."""
        self._ready = ready
        self._service.start()

    def stop(self) -> None:
        """Begin no other call."""
        self._service.stop(timeout_s=0.0)

    def __call__(self) -> HttpReply | None:
        if self.reply is None:
            self._service.wake()
        return self.reply

    def _run(self, service: Service) -> None:
        while service.wait():
            began_s = time.thread_time()
            self.reply = _called(self._route, "in the background")
            self._ready()
            rest(service, began_s)


def _called(route: Route, path: str) -> HttpReply | None:
    try:
        return route()
    except Exception:
        log.exception("http route failed path=%s", path)
        return HttpReply(500, "500 this route failed; the log says why\n")


@dataclass(eq=False)
class _Client:
    """A connection: its request is read, its answer written, then what still comes is dropped until
    the client closes: a close with unread input would take the answer away from it.
    """

    socket: socket.socket
    until_s: float
    is_waiting: bool = False
    """Whether its route has no answer yet."""
    watched_for: int = 0
    _received: bytearray = field(default_factory=bytearray)
    _answer: memoryview | None = None

    @property
    def interest(self) -> int:
        """What to wait for; 0: nothing of this client."""
        if self.is_waiting:
            return 0
        return selectors.EVENT_WRITE if self._answer else selectors.EVENT_READ

    def go_on(self, routes: Routes) -> bool:
        """Do what can be done without waiting; returns whether the connection is still needed."""
        try:
            if self._answer is None:
                return self._read(routes)
            return self._write() if self._answer else bool(self.socket.recv(MOST_BYTES))
        except BlockingIOError:
            return True

    def _read(self, routes: Routes) -> bool:
        if not self.is_waiting:
            if not (data := self.socket.recv(MOST_BYTES)):
                return False
            self._received += data
        if b"\r\n\r\n" in self._received or b"\n\n" in self._received:
            exchange = _Exchange(bytes(self._received), routes)
            self.is_waiting = exchange.is_waiting
            if self.is_waiting:
                return True
            self._answer = memoryview(exchange.answer)
        elif len(self._received) >= MOST_BYTES:
            self._answer = memoryview(_TOO_LARGE)
        else:
            return True
        self._received.clear()
        return self._write()

    def _write(self) -> bool:
        if self._answer:
            self._answer = self._answer[self.socket.send(self._answer) :]
        if not self._answer:
            self.socket.shutdown(socket.SHUT_WR)
        return True

    def close(self) -> None:
        """Close the connection, also for a forked child that has a copy of it."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


class _Exchange(BaseHTTPRequestHandler):
    """The standard library's parser, from bytes to bytes; ``answer`` is all of the answer, unless
    the route has none yet.
    """

    is_waiting = False

    error_message_format = "%(code)d %(message)s\n"
    error_content_type = _TEXT

    def __init__(self, request: bytes, routes: Routes) -> None:
        self._routes = routes
        no_socket: Any = request
        no_server: Any = None
        super().__init__(no_socket, ("", 0), no_server)

    def setup(self) -> None:
        """Take the place of the socket."""
        self.rfile = io.BytesIO(self.request)
        self.wfile = self._written = io.BytesIO()

    def finish(self) -> None:
        """Keep what was written."""
        self.answer = self._written.getvalue()

    def do_GET(self) -> None:
        """Answer with what the route says."""
        path = self.path.partition("?")[0]
        reply = _called(self._routes.get(path, self._unknown), path)
        if reply is None:
            self.is_waiting = True
            return
        body = reply.body.encode() if isinstance(reply.body, str) else reply.body
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815  (the library's name)

    def _unknown(self) -> HttpReply:
        return HttpReply(404, f"404 not here; there are {', '.join(self._routes)}\n")

    def version_string(self) -> str:
        """For the header ``Server``: no versions."""
        return "leaderq"

    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests: a probe comes every few seconds."""
