"""A TCP proxy between a client and a server, which does to their traffic what networks do.

One thread moves all bytes. A method returns when its fault is in force. ``heal`` ends every fault,
and resets the connections that have lost bytes, because a stream with a hole in it cannot go on.

ZooKeeper and Kafka speak in frames: four bytes of length, then a body. So exactly one request or
reply can be lost. A stream without such frames (TLS, four-letter words) is passed on as it is, and
rules find no frame in it.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import selectors
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any, Final, Literal, TypeVar, get_args

from leaderq.base.arguments import at_least, instance, plain_function, require, wanted
from leaderq.errors import ServerFailed, WouldDeadlock
from leaderq.testing.ports import HOST, LeasedPort, lease_port

log = logging.getLogger(__name__)

_LONGEST_FRAME: Final = 64 << 20
_AT_ONCE: Final = 256 << 10
HIGH_WATER: Final = 4 << 20
FrameTest = Callable[[bytes], bool]
"""Whether a frame, given without its length, is the wanted one."""


class LaneDecision(Enum):
    """What to do with one frame."""

    PASS = "pass"
    LOSE_AND_CUT = "lose and cut"
    LOSE = "lose"


class Rule:
    """Decides what happens to requests and replies; this rule passes all. Only the proxy's thread
    calls it. If it raises, that is logged, and the frame is passed.

    ``connection`` tells connections apart. A frame is given without its length; if bytes are
    returned, they take its place.
    """

    def request(self, connection: object, body: bytes) -> LaneDecision | bytes:
        """Decide what happens to a request."""
        return LaneDecision.PASS

    def reply(self, connection: object, body: bytes) -> LaneDecision | bytes:
        """Decide what happens to a reply."""
        return LaneDecision.PASS


class LoseReplies(Rule):
    """Loses the next ``which`` replies, or the first one for which ``which(body)`` is true."""

    def __init__(self, which: int | FrameTest, cut: bool) -> None:
        self._left = 1 if callable(which) else which
        self._is_wanted = which if callable(which) else None
        self._cut = cut

    def reply(self, connection: object, body: bytes) -> LaneDecision | bytes:
        if not self._left or (self._is_wanted is not None and not self._is_wanted(body)):
            return LaneDecision.PASS
        self._left -= 1
        return LaneDecision.LOSE_AND_CUT if self._cut and not self._left else LaneDecision.LOSE


class LoseReplyTo(Rule):
    """Loses the reply to the first request for which ``is_wanted`` is true; the reply has the same
    id.
    """

    def __init__(self, is_wanted: FrameTest) -> None:
        self._is_wanted: FrameTest | None = is_wanted
        self._awaited: tuple[object, bytes] | None = None

    def request(self, connection: object, body: bytes) -> LaneDecision | bytes:
        if self._is_wanted is not None and self._is_wanted(body):
            self._awaited = (connection, body[:4])
            self._is_wanted = None
        return LaneDecision.PASS

    def reply(self, connection: object, body: bytes) -> LaneDecision | bytes:
        if self._awaited != (connection, body[:4]):
            return LaneDecision.PASS
        self._awaited = None
        return LaneDecision.LOSE_AND_CUT


@dataclass
class Weather:
    """What happens to all traffic of one direction; shared by the lanes of all connections."""

    delay_s: float = 0.0
    is_held: bool = False  # bytes wait in the proxy and are delivered at the end
    is_swallowed: bool = False  # bytes are lost

    @property
    def is_silent(self) -> bool:
        """Whether even the end of a connection is hidden from the other side."""
        return self.is_held or self.is_swallowed


@dataclass
class Lane:
    """The bytes on their way in one direction; ``judge`` decides about each frame. Pure: callers
    pass the time.

    ``must_cut``: a rule wants the connection cut. ``has_lost``: bytes are gone, so the stream
    cannot go on.
    """

    weather: Weather
    judge: Callable[[bytes], LaneDecision | bytes]
    is_framed: bool = True
    must_cut: bool = False
    has_lost: bool = False
    _unfinished: bytearray = field(default_factory=bytearray)  # the beginning of a frame
    _queue: deque[tuple[float, bytes]] = field(default_factory=deque)
    _queued: int = 0

    def feed(self, chunk: bytes, *, now: float) -> None:
        if self.weather.is_swallowed or self.must_cut:
            self.has_lost = True
            return
        if not self.is_framed:
            self._pass(chunk, now)
            return
        self._unfinished += chunk
        while frame := self._next_frame():
            self._judge(frame, now)

    def end(self, *, now: float) -> None:
        self._pass(bytes(self._unfinished), now)
        self._unfinished.clear()

    def due(self, *, now: float) -> bytes:
        """The bytes to send now; afterwards call :meth:`sent` with how many of them were sent."""
        if self.weather.is_swallowed and self._queue:
            self.has_lost = True
            self._queue.clear()
            self._queued = 0
        if self.weather.is_held:
            return b""
        pieces, size = [], 0
        for when, piece in self._queue:
            if when > now or size >= _AT_ONCE:
                break
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    def sent(self, count: int) -> None:
        self._queued -= count
        while count:
            when, piece = self._queue.popleft()
            if count < len(piece):
                self._queue.appendleft((when, piece[count:]))
            count -= min(count, len(piece))

    @property
    def next_due(self) -> float | None:
        """When the first waiting bytes should be sent; ``None`` if no bytes wait, or they are
        held.
        """
        return self._queue[0][0] if self._queue and not self.weather.is_held else None

    @property
    def is_empty(self) -> bool:
        return not self._queue

    @property
    def has_room(self) -> bool:
        """Whether more bytes should be read; a held or slow lane must not grow without end."""
        return self._queued < HIGH_WATER

    def _pass(self, piece: bytes, now: float) -> None:
        if piece:
            self._queue.append((now + self.weather.delay_s, piece))
            self._queued += len(piece)

    def _next_frame(self) -> bytes:
        size = 4 + int.from_bytes(self._unfinished[:4], "big")
        is_whole = 4 <= size <= len(self._unfinished) or size > _LONGEST_FRAME
        if self.must_cut or len(self._unfinished) < 4 or not is_whole:
            return b""
        if size > _LONGEST_FRAME:
            self.is_framed = False
            size = len(self._unfinished)
        frame = bytes(self._unfinished[:size])
        del self._unfinished[:size]
        return frame

    def _judge(self, frame: bytes, now: float) -> None:
        decision = self.judge(frame[4:]) if self.is_framed else LaneDecision.PASS
        if isinstance(decision, bytes):
            self._pass(len(decision).to_bytes(4, "big") + decision, now)
        elif decision is LaneDecision.PASS:
            self._pass(frame, now)
        else:
            self.has_lost = True
            self.must_cut = decision is LaneDecision.LOSE_AND_CUT


_READ_SIZE: Final = 1 << 16
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)
_CONNECT_TIMEOUT_S: Final = 2.0  # the server is near, and answers or refuses at once
_RETRY_S: Final = 0.02
_LOSSES: Final = (LaneDecision.LOSE, LaneDecision.LOSE_AND_CUT)


@dataclass
class Side:
    """One socket of a link, the lane that it feeds, and the lane that it drains."""

    sock: socket.socket
    feeds: Lane
    drains: Lane
    has_ended: bool = False  # nothing more comes from it
    is_told: bool = False  # it was told that nothing more comes
    is_gone: bool = False  # its socket is closed

    def close(self, *, reset: bool) -> None:
        if not self.is_gone:
            if reset:
                self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            self.sock.close()
            self.is_gone = self.has_ended = True


class Link:
    """A client's connection, and the connection to the server that was made for it.

    While bytes are swallowed or held, one side is not told that the other has ended.
    """

    def __init__(
        self,
        client: socket.socket,
        upstream: tuple[str, int],
        to_server: Lane,
        to_client: Lane,
        wait_until_s: float,
    ) -> None:
        self._upstream = upstream
        self._wait_until_s = wait_until_s
        self._retry_at_s = 0.0
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
        """Read and write as much as possible; ``ready`` has the sockets on which something can be
        done.
        """
        # cut by an order of this very round: nothing may be opened for it any more
        if self.is_over:
            return
        if self._may_connect(now):
            self._connect(now)
        for side in self._sides:
            if not side.is_gone and ready.get(side.sock, 0) & selectors.EVENT_READ:
                self._read(side, now=now)
        for side in self._sides:
            self._write(side, now=now)
        self._pass_on_ends()

    def wishes(self, *, now: float) -> dict[socket.socket, int]:
        """The events to wait for, by socket."""
        wishes = {}
        for side in [side for side in self._sides if not side.is_gone]:
            mask = selectors.EVENT_READ * (side.feeds.has_room and not side.has_ended)
            due = side.drains.next_due
            if mask := mask | selectors.EVENT_WRITE * (due is not None and due <= now):
                wishes[side.sock] = mask
        return wishes

    def next_due(self, *, now: float) -> float | None:
        """When delayed bytes become due, or a connection is tried again; ``None``: only a socket is
        awaited.
        """
        times = [lane.next_due for lane in self._lanes]
        times += [self._retry_at_s] if self.server is None else []
        return min((time for time in times if time is not None and time > now), default=None)

    def cut(self, *, reset: bool = True) -> None:
        """End the link now, on both sides; bytes on their way are lost."""
        for side in self._sides:
            side.close(reset=reset)
        self.is_over = True

    def heal(self) -> None:
        """End the fault: the link continues if no byte was lost, else it is cut."""
        if any(lane.has_lost for lane in self._lanes) or self.client.is_gone:
            self.cut()

    def _may_connect(self, now: float) -> bool:
        is_due = self.server is None and now >= self._retry_at_s
        return is_due and not self._lanes[0].weather.is_swallowed

    def _connect(self, now: float) -> None:
        try:
            sock = socket.create_connection(self._upstream, _CONNECT_TIMEOUT_S)
        except (OSError, UnicodeError):  # the latter of a name that no host can have
            self._retry_at_s = now + _RETRY_S
            if now >= self._wait_until_s:
                self.cut()
            return
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.server = Side(sock, feeds=self.client.drains, drains=self.client.feeds)

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
            side.feeds.end(now=now)

    def _write(self, side: Side, *, now: float) -> None:
        if side.is_gone or not (data := side.drains.due(now=now)):
            return
        try:
            side.drains.sent(side.sock.send(data))
        except BlockingIOError:
            return
        except OSError:
            self._broken(side)

    def _broken(self, side: Side) -> None:
        if side.feeds.weather.is_silent:
            side.close(reset=True)
        else:
            self.cut()

    def _pass_on_ends(self) -> None:
        if self.is_over or self.server is None:
            return
        if any(lane.must_cut and lane.is_empty for lane in self._lanes):
            # Orderly: a reset could also destroy replies that the client has not read yet.
            self.cut(reset=False)
            return
        for side, other in ((self.client, self.server), (self.server, self.client)):
            may_tell = side.feeds.is_empty and not side.feeds.weather.is_silent
            if side.has_ended and may_tell and not other.is_told:
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
    """Clients connect to ``address`` and reach ``upstream`` (``host:port``). A context manager.

    ``address`` stays the same until ``stop``. ``port`` fixes it: a number, or a lease that the
    caller keeps. ``framed`` is false for traffic without the frames of ZooKeeper's or Kafka's
    clients, such as traffic between servers; rules find no reply in it. ``wait_s``: if nobody
    listens at ``upstream``, how long a client that has connected waits before it is reset.
    """

    def __init__(
        self,
        upstream: str,
        *,
        port: int | LeasedPort | None = None,
        framed: bool = True,
        wait_s: float = 0.0,
    ) -> None:
        given: Any = upstream
        host, _, number = given.rpartition(":") if isinstance(given, str) else ("", "", "")
        is_port = number.isdecimal() and len(number) <= 5 and 0 < int(number) < 1 << 16
        is_one = bool(host) and "," not in host and is_port
        require(wanted("upstream", upstream, is_one, "the address of one server, host:port"))
        self._upstream = (host, int(number))
        self._wanted_port = port
        self._framed = framed
        self._wait_s = wait_s
        self._port: LeasedPort | None = None
        self._listener: socket.socket | None = None
        self._links: list[Link] = []
        self._weather = {"to_server": Weather(), "to_client": Weather()}
        self._rules: dict[type[Rule], Rule] = {}
        self.dropped = 0
        """How many replies were lost by rule so far."""
        self._orders: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._stopping = False
        self.rounds = 0
        """How often the thread woke up; it does only when there is something to do."""

    # -- life

    @property
    def address(self) -> str:
        """The address for clients: ``host:port``."""
        if self._port is None:
            raise ServerFailed("the fault proxy was not started: it has no address")
        return self._port.address

    def start(self) -> FaultProxy:
        """Begin to listen and pass bytes on.

        :raises ServerFailed: no port is free.
        """
        if self._thread is not None:
            return self
        wanted = self._wanted_port
        self._port = wanted if isinstance(wanted, LeasedPort) else lease_port(wanted)
        self._stopping = False
        self._alarm, self._bell = socket.socketpair()
        self._alarm.setblocking(False)
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
        self._order(self._refuse)
        self._order(lambda: setattr(self, "_stopping", True))
        self._thread.join()
        self._thread = None
        for sock in (self._alarm, self._bell):
            sock.close()
        if self._port is not self._wanted_port:
            self._port.release()
        self._port = None

    def __enter__(self) -> FaultProxy:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # -- faults

    def black_hole(self) -> None:
        """Swallow all bytes both ways. Connections stay open, and new ones are accepted.

        The server does not learn that a client has gone away.
        """
        self._order(lambda: self._set_weather(is_swallowed=True))

    def freeze_direction(self, direction: Direction) -> None:
        """Hold the bytes of one direction; ``heal`` delivers them, late."""
        self._change(direction, is_held=True)

    def release_direction(self, direction: Direction) -> None:
        """Deliver what :meth:`freeze_direction` has held; other faults continue."""
        self._change(direction, is_held=False)

    def swallow_direction(self, direction: Direction) -> None:
        """Swallow the bytes of one direction; see :meth:`black_hole`."""
        self._change(direction, is_swallowed=True)

    def delay(self, seconds: float) -> None:
        """Deliver the bytes of each direction ``seconds`` after they came, in their order."""
        require(at_least("seconds", seconds, 0, "seconds"))
        self._order(lambda: self._set_weather(delay_s=seconds))

    def cut(self) -> None:
        """Reset all present connections; new ones are served."""
        self._order(self._cut_all)

    def refuse(self) -> None:
        """Reset all connections, and refuse new ones (nobody listens)."""
        self._order(self._refuse)

    def drop_replies(self, which: int | FrameTest, *, cut: bool = True) -> None:
        """Lose the next ``which`` replies, or the first one for which ``which(body)`` is true; then
        end that connection. Without ``cut``, the connection continues until ``heal``. Use that for
        watch events, because no client notices that one is missing.

        A reply is a frame without its length; pings and watch events are replies, too. Earlier
        replies arrive. The server has done its work, and the client cannot know it.
        """
        is_test = callable(which)
        require(plain_function("which", which) if is_test else at_least("which", which, 1))
        self.add_rule(LoseReplies(which, cut))

    def drop_reply_to(self, request: FrameTest) -> None:
        """Lose the reply to the first request for which ``request(body)`` is true, and end the
        connection. For ZooKeeper, whose replies begin with the same id as their requests.
        """
        require(plain_function("request", request))
        self.add_rule(LoseReplyTo(request))

    def add_rule(self, rule: Rule) -> None:
        """Add ``rule`` until ``heal``, in place of an earlier rule of its class. If there are
        several rules, the first that does not pass a frame decides.
        """
        require(instance("rule", rule, Rule))
        self._order(lambda: self._rules.update({type(rule): rule}))

    def heal(self) -> None:
        """End all faults: connections that lost bytes are reset, held bytes are delivered."""
        self._order(self._heal)

    @property
    def connections(self) -> int:
        """How many clients are connected now."""
        return self._order(lambda: sum(not link.client.is_gone for link in self._links))

    # -- the proxy's thread

    def _order(self, act: Callable[[], T]) -> T:
        thread = self._thread
        if thread is threading.current_thread():
            raise WouldDeadlock("a rule cannot order its own fault proxy; do that on your thread")
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
        while not self._stopping:
            self.rounds += 1
            ready = self._wait()
            if self._alarm in ready:
                with contextlib.suppress(BlockingIOError):
                    self._alarm.recv(4096)
                while not self._orders.empty():
                    self._orders.get()()
            if self._listener is not None and self._listener in ready:
                self._accept()
            now = time.monotonic()
            for link in self._links:
                link.serve(ready, now=now)
            self._links = [link for link in self._links if not link.is_over]

    def _wait(self) -> dict[Any, int]:
        """Wait until a socket has something to do, or delayed bytes are due; return the ready
        sockets.
        """
        now = time.monotonic()
        wishes = {self._alarm: selectors.EVENT_READ}
        if self._listener is not None:
            wishes[self._listener] = selectors.EVENT_READ
        for link in self._links:
            wishes.update(link.wishes(now=now))
        times = [when for link in self._links if (when := link.next_due(now=now)) is not None]
        with selectors.PollSelector() as selector:
            for sock, mask in wishes.items():
                selector.register(sock, mask)
            selected = selector.select(max(0.0, min(times) - now) if times else None)
        return {key.fileobj: mask for key, mask in selected}

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
            to_server, to_client = self._weather.values()
            requests = partial(self._judge, client, is_reply=False)
            replies = partial(self._judge, client, is_reply=True)
            lanes = Lane(to_server, requests, self._framed), Lane(to_client, replies, self._framed)
            wait_until_s = time.monotonic() + self._wait_s
            self._links.append(Link(client, self._upstream, *lanes, wait_until_s))

    def _judge(self, client: object, body: bytes, *, is_reply: bool) -> LaneDecision | bytes:
        for rule in self._rules.values():
            try:
                decision = (rule.reply if is_reply else rule.request)(client, body)
                require(instance("decision", decision, LaneDecision | bytes))
            except Exception:  # this thread serves all connections
                log.exception("rule of a fault proxy failed, a frame is passed rule=%r", rule)
                continue
            if decision is not LaneDecision.PASS:
                self.dropped += is_reply and decision in _LOSSES
                return decision
        return LaneDecision.PASS

    def _change(self, direction: Direction, **changed: bool) -> None:
        remedy = " or ".join(map(repr, get_args(Direction)))
        require(wanted("direction", direction, direction in get_args(Direction), remedy))
        self._order(lambda: vars(self._weather[direction]).update(changed))

    def _set_weather(self, **changed: Any) -> None:
        for weather in self._weather.values():
            vars(weather).update(changed)

    def _cut_all(self) -> None:
        for link in self._links:
            link.cut()
        self._links.clear()

    def _refuse(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        self._cut_all()

    def _heal(self) -> None:
        self._rules.clear()
        self._set_weather(**vars(Weather()))
        for link in self._links:
            link.heal()
        if self._listener is None:
            self._listen()
