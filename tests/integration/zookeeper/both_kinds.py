"""Connections to a real ensemble and to a simulated one, in pairs that do and hear the same.

Transactions are compared by their order, sessions by who has them, times not at all.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from kazoo.protocol import serialization as kazoo_wire
from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL

from leaderq.testing.simulation.ensemble import (
    Connected,
    Ensemble,
    Hello,
    Hungup,
    Refused,
    ServerAnswer,
    ServerEnd,
    ServerEvent,
)
from leaderq.testing.simulation.scheduler import World
from leaderq.zookeeper.wire import Failed, Stat

TIMEOUT_S = 60.0
NO_SESSION = Hello(0, b"\0" * 16, TIMEOUT_S)
AUTH, CLOSE, SET_ACL = 100, -11, 7
AUTH_FAILED = -115
_AUTH_XID, _EVENT_XID = -4, -1
_INT, _REQUEST, _EVENT = struct.Struct("!i"), struct.Struct("!ii"), struct.Struct("!iii")
_ANSWER = struct.Struct("!iqi")


class Granted(NamedTuple):
    session_id: int
    timeout_s: float


class Answer(NamedTuple):
    zxid: int
    error: int
    value: Any


Note = Granted | Refused | Answer | ServerEvent | Hungup


class RealConnection:
    """One connection to a real server; notes what comes, in its order."""

    def __init__(self, address: str, hello: Hello) -> None:
        host, _, port = address.rpartition(":")
        self.notes: list[Note] = []
        self.is_open = True
        self._granted = hello
        self._xid = 0
        self._asked: dict[int, Any] = {}
        self._socket = socket.create_connection((host, int(port)), timeout=60)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stream = self._socket.makefile("rb")
        asked_ms = int(hello.timeout_s * 1000)
        body = kazoo_wire.Connect(
            0, hello.last_zxid, asked_ms, hello.session_id, hello.password, False
        ).serialize()
        self._send(_INT.pack(len(body)) + body)
        if (frame := self._frame()) is not None:
            granted, _ = kazoo_wire.Connect.deserialize(frame, 0)
            if granted.time_out > 0:
                self._granted = Hello(granted.session_id, granted.passwd, hello.timeout_s)
                self.notes.append(Granted(granted.session_id, granted.time_out / 1000))
            else:
                self.notes.append(Refused())
                self.hear_the_end()

    @property
    def hello(self) -> Hello:
        """What takes the session up again."""
        return self._granted

    def do(self, *requests: Any) -> None:
        """Send these, one behind the other, and hear all until the answer to the last one, or until
        the server hangs up.
        """
        self._asked.clear()
        packed = b""
        for request in requests:
            self._xid += 1
            xid = _AUTH_XID if request.type == AUTH else self._xid
            self._asked[xid] = request
            body = _REQUEST.pack(xid, request.type) + request.serialize()
            packed += _INT.pack(len(body)) + body
        self._send(packed)
        while (frame := self._frame()) is not None:
            if self._note(frame) == xid:
                if request.type == CLOSE or self.notes[-1][1] == AUTH_FAILED:
                    self.hear_the_end()
                return

    def hear_the_end(self) -> None:
        while (frame := self._frame()) is not None:
            self._note(frame)

    def close(self) -> None:
        """Close it; the server has noticed when this returns. If it notices later, it forgets the
        session's next connection, and does not close that one in its turn.
        """
        self.is_open = False
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
            while self._stream.read(4096):
                pass
        self._stream.close()
        self._socket.close()

    def _send(self, packed: bytes) -> None:
        with suppress(ConnectionError):  # hung up on: to be heard in its place
            self._socket.sendall(packed)

    def _frame(self) -> bytes | None:
        try:
            head = self._stream.read(4)
            if len(head) == 4:
                return self._stream.read(_INT.unpack(head)[0])
        except ConnectionError:
            pass
        self.notes.append(Hungup())
        self.close()
        return None

    def _note(self, frame: bytes) -> int:
        xid, zxid, error = _ANSWER.unpack_from(frame)
        request = self._asked.get(xid)
        if xid == _EVENT_XID:
            kind, _, size = _EVENT.unpack_from(frame, _ANSWER.size)
            path = frame[_ANSWER.size + _EVENT.size :][:size].decode()
            self.notes.append(ServerEvent(kind, path))
        elif error or not hasattr(request, "deserialize"):
            self.notes.append(Answer(0 if xid == _AUTH_XID else zxid, error, None))
        else:
            self.notes.append(Answer(zxid, 0, request.deserialize(frame, _ANSWER.size)))
        return int(xid)


class SimulatedConnection:
    """One connection to a simulated server; notes what comes, in its order."""

    def __init__(
        self, ensemble: Ensemble, server: int, hello: Hello, wait: Callable[[], None]
    ) -> None:
        self.notes: list[Note] = []
        self.is_open = True
        self._granted = hello
        self._xid = 0
        self._asked: dict[int, int] = {}
        self._wait = wait
        end = ensemble.connect(server, hello, self._hear)
        self._end: ServerEnd = end
        wait()

    def _hear(self, message: object) -> None:
        if isinstance(message, ServerAnswer):
            zxid = 0 if self._asked.pop(message.xid) == AUTH else message.zxid
            self.notes.append(Answer(zxid, message.error_code, message.value))
            return
        if isinstance(message, Connected):
            self._granted = Hello(message.session_id, message.password, TIMEOUT_S)
            message = Granted(message.session_id, message.timeout_s)
        assert isinstance(message, (Granted, Refused, ServerEvent, Hungup))
        self.is_open = not isinstance(message, Hungup)
        self.notes.append(message)

    @property
    def hello(self) -> Hello:
        return self._granted

    def do(self, *requests: Any) -> None:
        for request in requests:
            self._xid += 1
            self._asked[self._xid] = request.type
            self._end.send(self._xid, request)
        self._wait()

    def close(self) -> None:
        self.is_open = False
        self._end.close()


@dataclass
class Comparison:
    """Whether two of them heard the same; keeps what must agree from one note to the next."""

    zxids: dict[int, int] = field(default_factory=dict)
    sessions: dict[int, int] = field(default_factory=lambda: {0: 0})

    def same(self, real: Any, simulated: Any) -> bool:
        if isinstance(real, Granted):
            return self._same_session(real[0], simulated[0]) and real[1:] == simulated[1:]
        if isinstance(real, Answer):
            if type(real) is not type(simulated) or not self._same_zxids(real[:1], simulated[:1]):
                return False
            return real.error == simulated.error and self.same(real.value, simulated.value)
        if isinstance(real, (ZnodeStat, Stat)):
            return type(real) is type(simulated) and self._same_stat(real, simulated)
        if isinstance(real, list) and real and isinstance(real[0], ACL):
            return sorted(real) == sorted(simulated)  # several identities come in no order
        if _is_child(real) and _is_child(simulated):
            real, simulated = real[::2], simulated[::2]
        if isinstance(real, (list, tuple)) and not isinstance(real, (Failed, ServerEvent)):
            return len(real) == len(simulated) and all(map(self.same, real, simulated))
        return bool(real == simulated)

    def _same_stat(self, real: Any, simulated: Any) -> bool:
        changes, others = (0, 1, 10), (4, 5, 6, 8, 9)
        return (
            self._same_zxids([real[at] for at in changes], [simulated[at] for at in changes])
            and all(real[at] == simulated[at] for at in others)
            and self._same_session(real[7], simulated[7])
        )

    def _same_zxids(self, real: Sequence[int], simulated: Sequence[int]) -> bool:
        return all(
            map(lambda one, other: self.zxids.setdefault(one, other) == other, real, simulated)
        )

    def _same_session(self, real: int, simulated: int) -> bool:
        return self.sessions.setdefault(real, simulated) == simulated

    def keep_order(self) -> None:
        """What came first with the one came first with the other; of it the newest is kept."""
        ranked = [(one, self.zxids[one]) for one in sorted(self.zxids)]
        assert not [pair for pair in pairwise(ranked) if pair[0][1] >= pair[1][1]]
        self.zxids = dict(ranked[-1:])


class Connection:
    """The same connection twice."""

    def __init__(self, server: int, real: RealConnection, simulated: SimulatedConnection) -> None:
        self.server = server
        self.real = real
        self.simulated = simulated

    @property
    def is_open(self) -> bool:
        assert self.real.is_open or not self.simulated.is_open, "only the real server has hung up"
        return self.simulated.is_open

    def do(self, *requests: Any) -> None:
        if self.is_open:
            self.simulated.do(*requests)
            self.real.do(*requests)

    def close(self) -> None:
        for one in (self.simulated, self.real):
            if one.is_open:
                one.close()

    def compare(self, comparison: Comparison, done: Sequence[object]) -> None:
        real, simulated = self.real.notes, self.simulated.notes
        for at in range(max(len(real), len(simulated))):
            pair = [notes[at] if at < len(notes) else None for notes in (real, simulated)]
            if not comparison.same(*pair):
                near = slice(max(0, at - 3), at + 3)
                shown = "\n".join(map(str, done))
                pytest.fail(
                    f"note {at}:\n real      {real[near]}\n simulated {simulated[near]}\n{shown}",
                    pytrace=False,
                )
        self.real.notes.clear()
        self.simulated.notes.clear()


def _is_child(one: Any) -> bool:
    """Of an answer to ``ChildData``, with a time between data and version."""
    return type(one) is tuple and len(one) == 3


class Servers:
    """A real ensemble at these addresses, and a simulated one of the same version and size."""

    def __init__(
        self, addresses: Sequence[str], version: str, *, step_s: float = 0.0, **options: Any
    ) -> None:
        self.addresses = addresses
        self._world = World(0)
        self._step = partial(self.pass_time, step_s)
        self.ensemble = Ensemble(
            now=lambda: self._world.now_s,
            at=self._world.at,
            delay=lambda what: 0.2 if what == "election" else 0.001,
            servers=len(addresses),
            min_session_timeout_s=1.0,
            max_session_timeout_s=60.0,
            version=version,
            **options,
        )
        self.opened: list[Connection] = []
        self.pass_time(step_s)

    def pass_time(self, seconds: float) -> None:
        self._world.run(self._world.now_s + seconds)

    def open(self, server: int, real: Hello, simulated: Hello) -> Connection:
        """Connect to this server, or to the next one if it is stopped."""
        while not self.ensemble.is_serving(server):
            server = (server + 1) % len(self.addresses)
        opened = Connection(
            server,
            RealConnection(self.addresses[server], real),
            SimulatedConnection(self.ensemble, server, simulated, self._step),
        )
        self.opened = [one for one in self.opened if one.real.is_open]
        self.opened.append(opened)
        return opened

    def close(self) -> None:
        """Close all connections."""
        for connection in self.opened:
            connection.close()


class Client:
    def __init__(self, servers: Servers, server: int = 0) -> None:
        self._servers = servers
        self.connections: list[Connection] = []
        self.begin(server)

    @property
    def newest(self) -> Connection:
        return self.connections[-1]

    def begin(self, server: int = 0) -> None:
        self.has_session = True
        self._open(server, NO_SESSION, NO_SESSION)
        newest = self.newest
        self._hellos = newest.real.hello, newest.simulated.hello

    def take_up(self, server: int = 0, **others: Any) -> None:
        """Take the session up through another connection, while it has one or not; ``others`` are
        what the client says otherwise than it should.
        """
        real, simulated = self._hellos
        self._open(server, real._replace(**others), simulated._replace(**others))

    def _open(self, server: int, real: Hello, simulated: Hello) -> None:
        self.connections.append(self._servers.open(server, real, simulated))

    def end(self) -> None:
        self.has_session = False
        self.newest.do(kazoo_wire.CloseInstance)
