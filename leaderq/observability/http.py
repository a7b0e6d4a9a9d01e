"""``leaderq run --http``: answers a few GET requests, whatever the clients do.

One thread with an event loop reads, answers and writes; no client makes it wait. Its limits:

* At most ``MOST_CONNECTIONS`` at a time: one more closes the oldest. So a host full of idle
  connections does not shut out a probe, which is answered as soon as it has sent its request.
* At most ``MOST_BYTES`` in a request, else the answer is 431. A connection is closed ``WITHIN_S``
  after it began.
* At most ``SHARE`` of one processor: the thread sleeps after each step. So a flood of requests
  takes no more than that from the career's threads, which share the interpreter.

A connection carries one request, HTTP/1.0, which the standard library parses. A body is not read.
If a route raises, the error is logged and the answer is 500. Routes run on this thread, except
:class:`InBackground`.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import socket
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import quote

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
    """The answer of a route."""

    status: int
    body: str | bytes
    kind: str = _TEXT


Route = Callable[[], HttpReply]
Routes = Mapping[str, "Route | InBackground"]


def health_routes(*careers: Health) -> Routes:
    """The routes of :mod:`leaderq.observability.health`: for all careers together, and for each
    one.
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
    """The first reason that ``why`` returns for a career; ``None`` if it returns none for any."""
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


def listening_on(host: str, port: int, given_as: str) -> socket.socket:
    """A socket that listens on ``host``, a name or an address; ``given_as``: the option that names
    it. ``::`` listens for IPv4, too, where the system can.

    :raises ConfigurationError: the address cannot be listened on.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        host.encode("idna")  # what cannot be a name makes create_server leave a socket open
        return socket.create_server(
            (host, port),
            family=family,
            backlog=MOST_CONNECTIONS,
            dualstack_ipv6=family == socket.AF_INET6 and socket.has_dualstack_ipv6(),
        )
    except (OSError, UnicodeError) as exc:
        why = (getattr(exc, "strerror", None) or str(exc)).partition(" (")[0]
        shown = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        what = f"{given_as}: {shown!r} cannot be listened on: {why}"
        remedy = "choose a free port, and an address of this host"
        raise ConfigurationError(f"{what}; {remedy}") from exc


class HttpEndpoint:
    """Listens on ``address`` (``host:port``). Port 0 is replaced by a free port, in ``address`` as
    well.

    :raises ConfigurationError: the address cannot be listened on.
    """

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._listener = listening_on(host.strip("[]"), int(port), "http")
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self._routes: Routes = {}
        self._clients: dict[asyncio.Task[None], None] = {}  # the oldest first
        self._throttled_s = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = asyncio.Event()
        self._service = Service("leaderq-http", lambda _: asyncio.run(self._listen()))

    def start(self, routes: Routes) -> None:
        """Begin to answer requests; ``routes`` has a route for each path."""
        self._routes = routes
        self._service.start()
        log.info("http endpoint listening address=%s", self.address)

    def stop(self) -> None:
        """Close all connections and the port. May be called twice, and without :meth:`start`."""
        for route in self._routes.values():
            if isinstance(route, InBackground):
                route.stop()
        self._service.stop(timeout_s=0.0)
        if self._loop is not None:
            with suppress(RuntimeError):  # it has ended
                self._loop.call_soon_threadsafe(self._over.set)
        self._service.stop(timeout_s=_STOP_S)
        _shut(self._listener)
        self._listener.close()

    def __enter__(self) -> HttpEndpoint:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    async def _listen(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._throttled_s = time.thread_time()
        if self._service.is_stopping:
            return
        server = await asyncio.start_server(
            self._serve, sock=self._listener, limit=MOST_BYTES, backlog=MOST_CONNECTIONS
        )
        await self._over.wait()
        _shut(self._listener)
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = asyncio.current_task()
        assert client is not None  # this is one
        if len(self._clients) >= MOST_CONNECTIONS:
            oldest = next(iter(self._clients))
            del self._clients[oldest]
            oldest.cancel()
        self._clients[client] = None
        try:
            await asyncio.wait_for(self._converse(reader, writer), WITHIN_S)
        except (OSError, asyncio.TimeoutError, asyncio.CancelledError):
            pass  # the client has left, was too slow, or was the oldest
        finally:
            self._clients.pop(client, None)
            _shut(writer.get_extra_info("socket"))
            writer.transport.abort()

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = bytearray()
        while not (b"\r\n\r\n" in received or b"\n\n" in received):
            if len(received) >= MOST_BYTES:
                answer = _TOO_LARGE
                break
            if not (chunk := await self._read(reader)):
                return
            received += chunk
        else:
            answer = await self._answer(bytes(received))
        writer.transport.set_write_buffer_limits(high=0)  # drain() waits for all of it
        writer.write(answer)
        await writer.drain()
        writer.write_eof()
        while await self._read(reader):
            pass  # a close with unread input would take the answer away

    async def _read(self, reader: asyncio.StreamReader) -> bytes:
        throttle(self._service, self._throttled_s)
        self._throttled_s = time.thread_time()
        return await reader.read(MOST_BYTES)

    async def _answer(self, request: bytes) -> bytes:
        exchange = _Exchange(request)
        if (path := exchange.asked) is not None:
            route = self._routes.get(path, self._unknown)
            if isinstance(route, InBackground):
                exchange.reply(await route.reply())
            else:
                exchange.reply(_called(route, path))
        return exchange.written.getvalue()

    def _unknown(self) -> HttpReply:
        return HttpReply(404, f"404 not here; there are {', '.join(self._routes)}\n")


def _shut(connection: socket.socket) -> None:
    """End the connection, also in a forked child that has a copy of the socket."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def throttle(service: Service, began_s: float) -> None:
    """Sleep so long that this thread works for at most ``SHARE`` of the time. ``began_s``: the
    thread's CPU time when its last piece of work began.
    """
    service.pause((time.thread_time() - began_s) * (1 / SHARE - 1))


class InBackground:
    """A route that may wait, for instance for a career's own collectors; it has a thread of its
    own.

    One call runs at a time; its reply goes to all who asked in the meantime.
    """

    def __init__(self, route: Route) -> None:
        self._route = route
        self._asked: deque[Callable[[HttpReply], object]] = deque()
        self._service = Service("leaderq-http-background", self._run)

    def stop(self) -> None:
        """Stop; no further call begins."""
        self._service.stop(timeout_s=0.0)

    async def reply(self) -> HttpReply:
        """Wait for the route's reply, on the caller's event loop."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[HttpReply] = loop.create_future()

        def tell(reply: HttpReply) -> None:
            if not answer.done():  # the client may have left
                answer.set_result(reply)

        def tell_soon(reply: HttpReply) -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(tell, reply)

        self._asked.append(tell_soon)
        self._service.start()
        self._service.wake()
        return await answer

    def _run(self, service: Service) -> None:
        while service.wait():
            began_s = time.thread_time()
            reply = _called(self._route, "in the background") if self._asked else None
            while reply is not None and self._asked:
                self._asked.popleft()(reply)
            throttle(service, began_s)


def _called(route: Route, path: str) -> HttpReply:
    try:
        return route()
    except BaseException:  # SystemExit of a collector too: this thread serves all other requests
        log.exception("http route failed path=%s", path)
        return HttpReply(500, "500 this route failed; the log says why\n")


class _Exchange(BaseHTTPRequestHandler):
    """Parses one request with the standard library's parser, and collects the answer, both as
    bytes. ``asked`` is the path of a valid request; the caller answers it by :meth:`reply`.
    """

    error_message_format = "%(code)d %(message)s\n"
    error_content_type = _TEXT
    asked: str | None = None

    def __init__(self, request: bytes) -> None:
        no_socket: Any = request
        no_server: Any = None
        super().__init__(no_socket, ("", 0), no_server)

    def setup(self) -> None:
        self.rfile = io.BytesIO(self.request)
        self.wfile = self.written = io.BytesIO()

    def finish(self) -> None:
        """Keep what was written."""

    def do_GET(self) -> None:
        self.asked = self.path.partition("?")[0]

    do_HEAD = do_GET  # noqa: N815  (the library's name)

    def do_POST(self) -> None:
        self.reply(HttpReply(405, "405 only GET and HEAD are answered\n"), Allow="GET, HEAD")

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_TRACE = do_POST  # noqa: N815

    def reply(self, reply: HttpReply, **headers: str) -> None:
        body = reply.body.encode() if isinstance(reply.body, str) else reply.body
        self.send_response(reply.status)
        self.send_header("Content-Type", reply.kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        """The value of the header ``Server``, which tells no versions."""
        return "leaderq"

    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests: a probe comes every few seconds."""
