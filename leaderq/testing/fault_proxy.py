"""A TCP proxy that stands between a client and a server and does to their traffic what networks do.

One thread moves all bytes. A method that changes the weather returns when the change is in force.
``heal`` ends every fault; connections that lost bytes are reset then, for a stream with a hole in
it cannot go on, and the others continue.
"""

from __future__ import annotations

import contextlib
import errno
import queue
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Literal, TypeVar

from leaderq.errors import ConfigurationError, ServerFailed
from leaderq.testing.fault_lane import Lane, ReplyRules, Weather
from leaderq.testing.ports import HOST, LeasedPort, lease_port

_READ_SIZE: Final = 1 << 16
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)


@dataclass
class Side:
    """One socket of a link, the lane that it feeds and the lane that it drains."""

    sock: socket.socket
    feeds: Lane
    drains: Lane
    is_connected: bool = True
    has_ended: bool = False  # nothing more comes from it
    is_told: bool = False  # it was told that nothing more comes
    is_gone: bool = False  # its socket is closed

    def close(self, *, reset: bool) -> None:
        """Close the socket, with a reset or an orderly end."""
        if not self.is_gone:
            if reset:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.sock.close()
            self.is_gone = self.has_ended = True


class Link:
    """A client's connection and the one made to the server on its behalf.

    While bytes are swallowed or held, the end of one side is not told to the other: a network that
    is cut tells nobody anything.
    """

    def __init__(
        self, client: socket.socket, upstream: tuple[str, int], to_server: Lane, to_client: Lane
    ) -> None:
        self._upstream = upstream
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.client = Side(client, feeds=to_server, drains=to_client)
        self.server: Side | None = None
        self.is_over = False

    @property
    def _sides(self) -> list[Side]:
        return [self.client] if self.server is None else [self.client, self.server]

    @property
    def _lanes(self) -> tuple[Lane, Lane]:
        return self.client.feeds, self.client.drains

    def serve(self, ready: dict[socket.socket, int], *, now: float) -> None:
        """Read and write what can be; ``ready`` are the sockets with something to do."""
        # cut by an order of this very round: nothing may be opened for it any more
        if self.is_over:
            return
        if self.server is None and not self._lanes[0].weather.is_swallowed:
            self._connect()
        for side in self._sides:
            mask = 0 if side.is_gone else ready.get(side.sock, 0)
            if mask & selectors.EVENT_WRITE and not side.is_connected:
                self._connected(side)
            if mask & selectors.EVENT_READ and not side.is_gone:
                self._read(side, now=now)
        for side in self._sides:
            self._write(side, now=now)
        self._pass_on_ends()

    def wishes(self, *, now: float) -> dict[socket.socket, int]:
        """Which events of which sockets are waited for."""
        wishes = {}
        for side in self._sides:
            mask = 0
            if (
                not side.is_gone
                and side.is_connected
                and not side.has_ended
                and side.feeds.has_room
            ):
                mask |= selectors.EVENT_READ
            if not side.is_gone and (not side.is_connected or side.drains.due(now=now)):
                mask |= selectors.EVENT_WRITE
            if mask:
                wishes[side.sock] = mask
        return wishes

    def next_due(self, *, now: float) -> float | None:
        """When delayed bytes become due; what is due already waits for its socket, not for a
        time.
        """
        times = [lane.next_due for lane in self._lanes]
        return min((time for time in times if time is not None and time > now), default=None)

    def cut(self, *, reset: bool = True) -> None:
        """End it now, on both sides; what is on its way is lost."""
        for side in self._sides:
            side.close(reset=reset)
        self.is_over = True

    def heal(self) -> None:
        """The fault is over: go on if no byte was lost, else end."""
        if any(lane.has_lost for lane in self._lanes) or self.client.is_gone:
            self.cut()
            return
        for lane in self._lanes:
            lane.release()

    def _connect(self) -> None:
        to_server, to_client = self._lanes
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server = Side(sock, feeds=to_client, drains=to_server, is_connected=False)
        if sock.connect_ex(self._upstream) not in (0, errno.EINPROGRESS):
            self.cut()

    def _connected(self, side: Side) -> None:
        if side.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self.cut()
        else:
            side.is_connected = True

    def _read(self, side: Side, *, now: float) -> None:
        try:
            chunk = side.sock.recv(_READ_SIZE)
        except BlockingIOError:
            return
        except OSError:
            self._broken(side)
            return
        if chunk:
            side.feeds.feed(chunk, now=now)
        else:
            side.has_ended = True

    def _write(self, side: Side, *, now: float) -> None:
        data = b"" if side.is_gone or not side.is_connected else side.drains.due(now=now)
        if not data:
            return
        try:
            side.drains.sent(side.sock.send(data))
        except BlockingIOError:
            return
        except OSError:
            self._broken(side)

    def _broken(self, side: Side) -> None:
        if side.feeds.weather.is_swallowed or side.feeds.weather.is_held:
            side.close(reset=True)
        else:
            self.cut()

    def _pass_on_ends(self) -> None:
        if self.is_over or self.server is None:
            return
        if any(lane.must_cut and lane.is_empty for lane in self._lanes):
            # Orderly, for a reset could also destroy the replies before the lost one that the
            # client has not read yet.
            self.cut(reset=False)
            return
        for side, other in ((self.client, self.server), (self.server, self.client)):
            silent = side.feeds.weather.is_swallowed or side.feeds.weather.is_held
            if (
                side.has_ended
                and not other.is_told
                and not silent
                and side.feeds.is_empty
                and other.is_connected
            ):
                self._tell_end(other)
        if all(side.is_told or side.is_gone for side in self._sides):
            self.cut(reset=False)

    def _tell_end(self, side: Side) -> None:
        side.is_told = True
        if not side.is_gone:
            try:
                side.sock.shutdown(socket.SHUT_WR)
            except OSError:
                self._broken(side)


Direction = Literal["to_server", "to_client"]
T = TypeVar("T")

_ANSWER_TIMEOUT_S: Final = 60.0


class FaultProxy:
    """Clients connect to ``address`` and reach ``upstream`` (``host:port``), until a fault is put
    in between.

    A context manager; ``start`` and ``stop`` may be called again. ``address`` stays the same until
    ``stop``; ``port`` fixes it, by number or as a lease that the caller keeps. ``framed`` is false
    for traffic that is not in the frames of ZooKeeper's or Kafka's clients, such as that between
    servers: no rule finds a reply in it.
    """

    def __init__(
        self, upstream: str, *, port: int | LeasedPort | None = None, framed: bool = True
    ) -> None:
        host, _, number = upstream.rpartition(":")
        if not host or "," in upstream or not number.isdigit():
            raise ConfigurationError(
                f"a fault proxy stands before one server, host:port; {upstream!r} is not that"
            )
        self._upstream = (host, int(number))
        self._wanted_port = port
        self._framed = framed
        self._port: LeasedPort | None = None
        self._listener: socket.socket | None = None
        self._links: list[Link] = []
        self._weather = {"to_server": Weather(), "to_client": Weather()}
        self._rules = ReplyRules()
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self.rounds = 0
        """How often the thread woke up; it does only when there is something to do."""

    # -- life

    @property
    def address(self) -> str:
        """Where clients connect: ``host:port``."""
        if self._port is None:
            raise ServerFailed("the fault proxy was not started: it has no address")
        return self._port.address

    def start(self) -> FaultProxy:
        """Begin to listen and pass bytes on.

        :raises ServerFailed: no port can be had.
        """
        if self._thread is not None:
            return self
        wanted = self._wanted_port
        self._port = wanted if isinstance(wanted, LeasedPort) else lease_port(wanted)
        self._stopping = False
        self._selector = selectors.DefaultSelector()
        self._alarm, self._bell = socket.socketpair()
        self._alarm.setblocking(False)
        self._selector.register(self._alarm, selectors.EVENT_READ)
        self._listen()
        self._thread = threading.Thread(
            target=self._run, name=f"fault-proxy-{self._port.number}", daemon=True
        )
        self._thread.start()
        return self

    def stop(self) -> None:
        """Reset all connections and stop listening."""
        if self._thread is None or self._port is None:
            return
        self._order(self._begin_stop)
        self._thread.join()
        self._thread = None
        for sock in (self._alarm, self._bell):
            sock.close()
        self._selector.close()
        if self._port is not self._wanted_port:
            self._port.release()
        self._port = None

    def __enter__(self) -> FaultProxy:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    # -- faults

    def black_hole(self) -> None:
        """Swallow all bytes both ways. Connections stay open, new ones are accepted, and nothing is
        ever answered.

        The end of a connection is not passed on either: the server does not learn that a client
        went away.
        """
        self._order(lambda: self._set_weather(is_swallowed=True))

    def freeze_direction(self, direction: Direction) -> None:
        """Hold the bytes of one direction; unlike in a black hole they are delivered, late, at
        ``heal``.
        """
        self._order(lambda: setattr(self._weather[direction], "is_held", True))

    def swallow_direction(self, direction: Direction) -> None:
        """Swallow the bytes of one direction, as :meth:`black_hole` does of both; the other one
        goes on.
        """
        self._order(lambda: setattr(self._weather[direction], "is_swallowed", True))

    def delay(self, seconds: float) -> None:
        """Deliver the bytes of each direction ``seconds`` later than they came, in their order."""
        self._order(lambda: self._set_weather(delay_s=seconds))

    def cut(self) -> None:
        """Reset all connections there are now; new ones are served."""
        self._order(self._cut_all)

    def refuse(self) -> None:
        """Reset all connections, and refuse new ones (nobody listens)."""
        self._order(self._refuse)

    def drop_next_reply(self) -> None:
        """Lose the next reply of the server whole, then end that connection; see
        :meth:`drop_replies`.
        """
        self.drop_replies(1)

    def drop_replies(self, which: int | Callable[[bytes], bool], *, cut: bool = True) -> None:
        """Lose the next ``which`` replies, or the first one of which ``which(body)`` is true; then
        end that connection.

        Without ``cut`` the connection goes on until ``heal``. Only a watch event can be lost
        unnoticed: a client misses a reply.

        A reply is a frame of ZooKeeper or Kafka without its length; the answer to a ping and a
        watch event are such too. What came before the lost reply arrives. The server has done its
        work, and the client cannot know.
        """
        self._order(lambda: self._rules.drop(which, cut=cut))

    def drop_reply_to(self, request: Callable[[bytes], bool], *, id_at: int = 0) -> None:
        """Lose the reply to the first request of which ``request(body)`` is true, then end that
        connection.

        A reply is known by the four bytes it begins with, which stand at ``id_at`` in the request:
        0 in ZooKeeper, 4 in Kafka.
        """
        self._order(lambda: self._rules.drop_reply_to(request, id_at))

    def drop_requests(self, request: Callable[[bytes], bool]) -> None:
        """Lose every request of which ``request(body)`` is true, and end its connection, until
        ``heal``.

        The server never hears of them. The first frame of a connection counts as one: in ZooKeeper
        it opens a session, or takes one up.
        """
        self._order(lambda: self._rules.drop_requests(request))

    def hold_replies_to(self, request: Callable[[bytes], bool]) -> None:
        """Hold the replies to all requests of which ``request(body)`` is true, until ``heal``
        delivers them. For ZooKeeper.

        A server without its quorum does so to writes. It answers each connection in order: what
        comes behind a held reply is held too, except pings and watch events. Other connections are
        answered.
        """
        self._order(lambda: self._rules.hold_replies_to(request))

    def answer_from_the_past(self, request: Callable[[bytes], bool]) -> None:
        """Give the second request of which ``request(body)`` is true the answer that the first one
        got. For ZooKeeper.

        A server that lags behind the others answers reads so. The rule is over after that one
        answer.
        """
        self._order(lambda: self._rules.answer_from_the_past(request))

    def heal(self) -> None:
        """End all faults and forget all rules. Connections that lost bytes are reset, held bytes
        are delivered.
        """
        self._order(self._heal)

    @property
    def dropped(self) -> int:
        """How many replies were lost by rule so far."""
        return self._rules.dropped

    @property
    def connections(self) -> int:
        """How many clients are connected now."""
        return self._order(lambda: sum(not link.client.is_gone for link in self._links))

    # -- the proxy's thread

    def _order(self, act: Callable[[], T]) -> T:
        thread = self._thread
        if thread is None or not thread.is_alive():
            raise ServerFailed("the fault proxy does not run; start it first")
        done: Future[T] = Future()

        def carry_out() -> None:
            try:
                done.set_result(act())
            except BaseException as exc:  # noqa: BLE001 - it is raised where the order was given
                done.set_exception(exc)

        self._orders.put(carry_out)
        self._bell.send(b"!")
        return done.result(_ANSWER_TIMEOUT_S)

    def _run(self) -> None:
        registered: dict[socket.socket, int] = {}
        while not self._stopping:
            self.rounds += 1
            wait_s = self._register(registered)
            selected = self._selector.select(wait_s)
            ready: dict[Any, int] = {key.fileobj: mask for key, mask in selected}
            if self._alarm in ready:
                self._carry_out_orders()
            if self._listener is not None and self._listener in ready:
                self._accept()
            now = time.monotonic()
            for link in self._links:
                link.serve(ready, now=now)
            self._links = [link for link in self._links if not link.is_over]

    def _register(self, registered: dict[socket.socket, int]) -> float | None:
        """Bring the selector in line with what is waited for; gives how long to wait at most."""
        now = time.monotonic()
        wishes: dict[socket.socket, int] = {}
        times = []
        for link in self._links:
            wishes.update(link.wishes(now=now))
            times.append(link.next_due(now=now))
        if self._listener is not None:
            wishes[self._listener] = selectors.EVENT_READ
        for sock in [sock for sock in registered if wishes.get(sock) != registered[sock]]:
            # closed since: the system has forgotten it by itself
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(sock)
            del registered[sock]
        for sock, mask in wishes.items():
            if sock not in registered:
                self._selector.register(sock, mask)
                registered[sock] = mask
        soonest = min((when for when in times if when is not None), default=None)
        return None if soonest is None else max(0.0, soonest - now)

    def _carry_out_orders(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._alarm.recv(4096)
        while not self._orders.empty():
            self._orders.get()()

    def _listen(self) -> None:
        assert self._port is not None
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, self._port.number))
        except OSError as exc:
            listener.close()
            raise ServerFailed(
                f"the fault proxy cannot listen at {self._port.address}: {exc}"
            ) from exc
        listener.listen(128)
        listener.setblocking(False)
        self._listener = listener

    def _accept(self) -> None:
        assert self._listener is not None
        with contextlib.suppress(OSError):  # the client gave up before it was accepted
            client, _ = self._listener.accept()
            judges = self._rules.for_connection()
            lanes = [
                Lane(
                    self._weather[way], judge, lambda: self._rules.are_armed, is_framed=self._framed
                )
                for way, judge in zip(("to_server", "to_client"), judges, strict=True)
            ]
            self._links.append(Link(client, self._upstream, lanes[0], lanes[1]))

    def _set_weather(
        self, *, is_swallowed: bool | None = None, delay_s: float | None = None
    ) -> None:
        for weather in self._weather.values():
            weather.is_swallowed = weather.is_swallowed if is_swallowed is None else is_swallowed
            weather.delay_s = weather.delay_s if delay_s is None else delay_s

    def _cut_all(self) -> None:
        for link in self._links:
            link.cut()
        self._links.clear()

    def _close_listener(self) -> None:
        if self._listener is not None:
            with contextlib.suppress(KeyError):
                self._selector.unregister(self._listener)
            self._listener.close()
            self._listener = None

    def _refuse(self) -> None:
        self._close_listener()
        self._cut_all()

    def _begin_stop(self) -> None:
        self._refuse()
        self._stopping = True

    def _heal(self) -> None:
        self._rules.forget()
        for weather in self._weather.values():
            weather.delay_s, weather.is_held, weather.is_swallowed = 0.0, False, False
        for link in self._links:
            link.heal()
        if self._listener is None:
            self._listen()
