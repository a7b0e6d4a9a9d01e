"""The simulated ensemble cannot lie: what is drawn at random is done to it and to real servers.

Three clients do one operation after the other. Every answer, every error and every event of a watch
must be the same, and for each client in the same order. Transactions are compared by order, owners
of ephemeral znodes by client, times not at all.

``LEADERQ_CONFORMANCE_STEPS`` says how many operations, ``LEADERQ_CONFORMANCE_SEED`` which.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st
from kazoo.exceptions import ZookeeperError
from kazoo.protocol import serialization as kazoo_wire
from kazoo.protocol.states import ZnodeStat
from kazoo.security import OPEN_ACL_UNSAFE

from leaderq.testing import ZooKeeperServer, eventually
from leaderq.testing.provision import runs_from_jars
from leaderq.testing.simulation.ensemble import (
    Connected,
    Ensemble,
    Hello,
    Hungup,
    ServerAnswer,
    ServerEnd,
    ServerEvent,
)
from leaderq.zookeeper import Session, connect, wire
from leaderq.zookeeper.wire import Failed, Stat

STEPS = int(os.environ.get("LEADERQ_CONFORMANCE_STEPS", "20000"))
SEED = int(os.environ.get("LEADERQ_CONFORMANCE_SEED", "27"))
IN_ONE_HISTORY = 200
CLIENTS = 3
PATHS = ("/a", "/b", "/a/a", "/a/b", "/a/a/c", "/b/x-", "/a/q-", "")
"""Below a root of each history; the last is that root."""
Note = tuple[Any, ...]
"""An event ("event", kind, path) or an answer ("answer", error, value), as a client heard it."""


# -- what is drawn ---------------------------------------------------------------------------------


class Draw:
    """Choices out of one number; small numbers make simple ones."""

    def __init__(self, number: int) -> None:
        self._left = number

    def below(self, limit: int) -> int:
        self._left, chosen = divmod(self._left, limit)
        return chosen

    def of(self, options: Any) -> Any:
        return options[self.below(len(options))]


def _watcher(_: object) -> None:
    """A one-shot watch: what matters is that the server knows of it."""


class RequestMaker:
    """Turns numbers into requests below one root."""

    def __init__(self, root: str) -> None:
        self._root = root

    def request(self, draw: Draw) -> Any:
        makers = (
            self._create, self._delete, self._set, self._exists, self._get, self._children,
            self._create, self._multi, self._set, self._multi, self._delete, self._multi_read,
            self._child_data, self._add_watch, self._remove_watches, self._get, self._children,
            self._create, self._sync, self._add_watch,
        )  # fmt: skip
        return draw.of(makers)(draw)

    def _path(self, draw: Draw) -> str:
        return self._root + str(draw.of(PATHS))

    def _version(self, draw: Draw) -> int:
        return int(draw.of((-1, -1, 0, 1)))

    def _create(self, draw: Draw) -> Any:
        flags = draw.of((0, 1, 2, 3, 0))
        path = self._path(draw) or "/"
        if flags & wire.SEQUENTIAL and draw.below(2):
            path += "/"
        data = b"." * draw.below(3)
        return kazoo_wire.Create(path, data, OPEN_ACL_UNSAFE, flags)

    def _delete(self, draw: Draw) -> Any:
        return kazoo_wire.Delete(self._path(draw) or "/", self._version(draw))

    def _set(self, draw: Draw) -> Any:
        return kazoo_wire.SetData(self._path(draw), b"." * draw.below(3), self._version(draw))

    def _exists(self, draw: Draw) -> Any:
        return kazoo_wire.Exists(self._path(draw), draw.of((None, _watcher)))

    def _get(self, draw: Draw) -> Any:
        return kazoo_wire.GetData(self._path(draw), draw.of((None, _watcher)))

    def _children(self, draw: Draw) -> Any:
        return kazoo_wire.GetChildren(self._path(draw), draw.of((None, _watcher)))

    def _sync(self, draw: Draw) -> Any:
        return kazoo_wire.Sync(self._path(draw))

    def _multi(self, draw: Draw) -> Any:
        operations = [self._operation(draw) for _ in range(1 + draw.below(4))]
        return wire.Multi(operations, lambda path, _: path, OPEN_ACL_UNSAFE)

    def _operation(self, draw: Draw) -> wire.Operation:
        kind, path = draw.below(5), self._path(draw)
        if kind == 0:
            return wire.SetData(path, b"." * draw.below(3), self._version(draw))
        if kind == 1:
            return wire.Delete(path, self._version(draw))
        if kind == 2:
            return wire.Check(path, self._version(draw))
        flags = draw.below(4)
        is_open_ended = flags >= 2 and draw.below(2)
        path += "/" if is_open_ended else ""
        return wire.Create(path, b"x", ephemeral=bool(flags & 1), sequential=bool(flags & 2))

    def _multi_read(self, draw: Draw) -> Any:
        kinds = (wire.GetData, wire.GetChildren)
        reads = [draw.of(kinds)(self._path(draw)) for _ in range(1 + draw.below(3))]
        return wire.MultiRead(reads, lambda path, _: path)

    def _child_data(self, draw: Draw) -> Any:
        return wire.ChildData(f"{self._root}/", ["a", "b", "c"][: 1 + draw.below(3)])

    def _add_watch(self, draw: Draw) -> Any:
        return wire.AddWatch(self._path(draw), draw.below(2))

    def _remove_watches(self, draw: Draw) -> Any:
        return wire.RemoveWatches(self._path(draw), draw.of((4, 5, 3, 2, 1)))


# -- the two kinds of clients ----------------------------------------------------------------------


class _Recorder:
    """Stands before a reply of a session, on the thread that reads answers."""

    def __init__(self, reply: Any, notes: list[Note]) -> None:
        self._reply = reply
        self._notes = notes

    def set(self, value: Any = None) -> None:
        self._notes.append(("answer", 0, value))
        self._reply.set(value)

    def set_exception(self, error: BaseException) -> None:
        code = error.code if isinstance(error, ZookeeperError) else repr(error)
        self._notes.append(("answer", code, None))
        self._reply.set_exception(error)


class RealClient:
    """A session of leaderq with real servers; notes what came, as it came."""

    def __init__(self, address: str) -> None:
        self._address = address
        self.notes: list[Note] = []
        self.session: Session
        self._begin()

    def _begin(self) -> None:
        self.session = connect(self._address, timeout_s=30.0)
        client = self.session._client
        submit, hear = client.submit, client.connection._on_event

        def noted(request: Any, reply: Any) -> None:
            submit(request, _Recorder(reply, self.notes))

        def note_event(kind: int, path: str) -> None:
            self.notes.append(("event", kind, path))
            hear(kind, path)

        client.submit = noted  # type: ignore[method-assign]
        client.connection._on_event = note_event

    @property
    def session_id(self) -> int:
        assert self.session.id is not None
        return self.session.id

    def do(self, request: Any) -> None:
        done = self.session._send(request, lambda value: value, None)
        done.exception(timeout=30)

    def begin_again(self) -> None:
        self.end()
        self._begin()

    def come_back(self) -> None:
        former = self.session._client.connection.attempts
        self.session.drop_connection()
        eventually(
            lambda: (
                self.session._client.connection.attempts > former
                and not self.session._client.connection.is_connecting
                and self.session._client.connected
            ),
            message="the session has a connection again",
        )

    def end(self) -> None:
        assert self.session.close()


class SimulatedClient:
    """A client of the simulated ensemble, with what it would hear at once."""

    def __init__(self, ensemble: Ensemble) -> None:
        self._ensemble = ensemble
        self.notes: list[Note] = []
        self._xid = 0
        self._kind = 0
        self._begin(Hello(0, b"", 30.0))

    def _begin(self, hello: Hello) -> None:
        end = self._ensemble.connect(0, hello, self._hear)
        assert end is not None
        self._end: ServerEnd = end

    @property
    def session_id(self) -> int:
        return self._granted.session_id

    def _hear(self, message: object) -> None:
        if isinstance(message, ServerEvent):
            self.notes.append(("event", message.kind, message.path))
        elif isinstance(message, ServerAnswer):
            assert message.xid == self._xid
            code, value = message.error_code, message.value
            is_absent = self._kind == kazoo_wire.Exists.type and code == -101
            self.notes.append(("answer", 0 if is_absent else code, value))
        elif isinstance(message, Connected):
            self._granted = message
        else:
            assert isinstance(message, Hungup)

    def do(self, request: Any) -> None:
        self._xid += 1
        self._kind = request.type
        self._end.send(self._xid, request)

    def begin_again(self) -> None:
        self.end()
        self._begin(Hello(0, b"", 30.0))

    def come_back(self) -> None:
        self._end.close()
        self._begin(Hello(self._granted.session_id, self._granted.password, 30.0))

    def end(self) -> None:
        heard = len(self.notes)
        self.do(kazoo_wire.CloseInstance)
        del self.notes[heard:]  # a session that is being closed tells its user nothing


class _NoTimer:
    def cancel(self) -> None:
        pass


def _simulated(version: str) -> Ensemble:
    return Ensemble(
        now=lambda: 1.0,
        at=lambda _delay_s, _act: _NoTimer(),
        delay=lambda _: 0.0,
        min_session_timeout_s=1.0,
        max_session_timeout_s=60.0,
        version=version,
    )


# -- comparing -------------------------------------------------------------------------------------


@dataclass
class Comparison:
    """Brings what two kinds of clients heard to one form, and keeps what must agree in order."""

    zxids: dict[int, int] = field(default_factory=dict)
    owners: dict[int, int] = field(default_factory=dict)

    def same(self, real: Note, simulated: Note) -> bool:
        return self._same(real, simulated)

    def _same(self, real: Any, simulated: Any) -> bool:
        if isinstance(real, (ZnodeStat, Stat)):
            return type(real) is type(simulated) and self._same_stat(real, simulated)
        if isinstance(real, (list, tuple)) and not isinstance(real, Failed):
            return len(real) == len(simulated) and all(map(self._same, real, simulated))
        return bool(real == simulated)

    def _same_stat(self, real: Any, simulated: Any) -> bool:
        self.owners.setdefault(0, 0)
        pairs = zip(
            (real[0], real[1], real[10]), (simulated[0], simulated[1], simulated[10]), strict=True
        )
        if any(self.zxids.setdefault(one, other) != other for one, other in pairs):
            return False
        return real[4:7] == simulated[4:7] and real[8:10] == simulated[8:10] and (
            self.owners.get(real[7], "unknown") == simulated[7]
        )  # fmt: skip

    def keep_order(self) -> bool:
        ranked = [self.zxids[one] for one in sorted(self.zxids)]
        return all(one < other for one, other in pairwise(ranked))


def _without_times(note: Note) -> Note:
    """Answers of ``ChildData`` hold a time, without a stat around it."""
    if note[0] == "answer" and isinstance(note[2], list):
        cleared = [
            (one[0], one[2]) if type(one) is tuple and len(one) == 3 else one for one in note[2]
        ]
        return (*note[:2], cleared)
    return note


class Pair:
    """The same three clients twice."""

    def __init__(self, address: str, version: str) -> None:
        self._address = address
        self._version = version
        self._histories = 0
        self._real: list[RealClient] = []
        self._begin()

    def _begin(self) -> None:
        self.close()
        ensemble = _simulated(self._version)
        self._real = [RealClient(self._address) for _ in range(CLIENTS)]
        self._simulated = [SimulatedClient(ensemble) for _ in range(CLIENTS)]
        self._comparison = Comparison()

    def close(self) -> None:
        for client in self._real:
            client.session.close()

    def try_history(self, numbers: list[int]) -> None:
        """Do what is drawn, and compare; nothing of it is left for the next one."""
        try:
            self._try(numbers)
        except BaseException:
            self._begin()
            raise
        for at in range(CLIENTS):
            self._both(at, lambda client: client.begin_again())
            self._real[at].notes.clear()
            self._simulated[at].notes.clear()

    def _try(self, numbers: list[int]) -> None:
        self._histories += 1
        root = f"/history-{self._histories}"
        maker = RequestMaker(root)
        self._both(0, lambda client: client.do(_created(root)))
        done = []
        for number in filter(None, numbers):  # so that a failure is shown with what it needs
            draw = Draw(number)
            at = draw.below(CLIENTS)
            what = draw.below(150)
            if what == 149:
                done.append(f"{at}: begins again")
                self._settle()
                self._both(at, lambda client: client.begin_again())
            elif what == 148:
                done.append(f"{at}: comes back")
                self._settle()
                self._both(at, lambda client: client.come_back())
            else:
                request = maker.request(draw)
                done.append(f"{at}: {_shown(request)}")
                self._both(at, lambda client, request=request: client.do(request))
        self._settle()
        for at in range(CLIENTS):
            self._compare(at, done)
        assert self._comparison.keep_order()

    def _both(self, at: int, act: Callable[[Any], object]) -> None:
        real, simulated = self._real[at], self._simulated[at]
        self._comparison.owners[real.session_id] = simulated.session_id
        act(simulated)
        act(real)
        self._comparison.owners[real.session_id] = simulated.session_id

    def _settle(self) -> None:
        """All events have come: each client has an answer to something asked after them."""
        for at in range(CLIENTS):
            self._both(at, lambda client: client.do(kazoo_wire.Exists("/zookeeper", None)))

    def _compare(self, at: int, done: list[str]) -> None:
        real = [_without_times(note) for note in self._real[at].notes]
        simulated = [_without_times(note) for note in self._simulated[at].notes]
        for index, (one, other) in enumerate(zip(real, simulated, strict=False)):
            if not self._comparison.same(one, other):
                near = slice(max(0, index - 3), index + 3)
                pytest.fail(
                    f"client {at}, note {index}:\n real      {real[near]}\n"
                    f" simulated {simulated[near]}\n" + "\n".join(done),
                    pytrace=False,
                )
        assert len(real) == len(simulated), (at, real[-3:], simulated[-3:], done)


def _created(path: str) -> Any:
    return kazoo_wire.Create(path, b"", OPEN_ACL_UNSAFE, 0)


def _shown(request: Any) -> str:
    body = bytes(request.serialize())
    return f"{type(request).__name__} {body!r}"


# -- the test --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    if not runs_from_jars("ZooKeeperServer"):
        pytest.skip("the version of the server must be known")
    with ZooKeeperServer(settings={"forceSync": "no"}) as server:
        version = server.ask("srvr").partition("version: ")[2].partition("-")[0]
        both = Pair(server.address, version)
        yield both
        both.close()


@seed(SEED)
@settings(
    max_examples=max(1, STEPS // IN_ONE_HISTORY),
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(
    numbers=st.lists(
        st.integers(0, (1 << 40) - 1), min_size=IN_ONE_HISTORY, max_size=IN_ONE_HISTORY
    )
)
def test_real_servers_say_what_simulated_ones_say(pair: Pair, numbers: list[int]) -> None:
    pair.try_history(numbers)
