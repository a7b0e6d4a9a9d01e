"""A ZooKeeper client for simulated processes, with the interface of
``leaderq.zookeeper.client.Client``.

The real session, requests, watches and errors use it. It replaces kazoo's connection: one task
connects, sends, reads and pings by the same rules (:class:`~leaderq.zookeeper.connection.Liveness`,
the limit of a connect), one task runs the callbacks of answers, and one those of watches.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

from kazoo.exceptions import EXCEPTIONS, ConnectionLoss, SessionExpiredError
from kazoo.protocol.serialization import CloseInstance, Exists, GetChildren, PingInstance
from kazoo.protocol.states import KeeperState
from kazoo.security import OPEN_ACL_UNSAFE

from leaderq.testing.simulation.ensemble import (
    Connected,
    Hello,
    Hungup,
    Refused,
    ServerAnswer,
    ServerEvent,
)
from leaderq.testing.simulation.network import Connection, Network
from leaderq.testing.simulation.primitives import (
    SimulatedEvent,
    SimulatedQueue,
    SimulatedThread,
    current_thread,
    running,
)
from leaderq.testing.simulation.scheduler import Process
from leaderq.zookeeper.connection import Liveness, connect_limit_s
from leaderq.zookeeper.paths import Address
from leaderq.zookeeper.proof import NEVER, Echoes
from leaderq.zookeeper.security import Credentials, Security
from leaderq.zookeeper.translation import NotSent

_PING_XID = -2
_NO_NODE = -101
_EVENT_TYPES = {1: "CREATED", 2: "DELETED", 3: "CHANGED", 4: "CHILD"}
_RETRY_FIRST_S, _RETRY_MOST_S = 0.1, 1.0


class _Wake(Enum):
    WAKE = "wake"
    DROP = "drop"
    SILENT = "silent"


class _WatchEvent(NamedTuple):
    """A one-shot watch that has fired, in kazoo's form."""

    type: str
    path: str | None


class _Dropped(Exception):
    """The connection cannot be used any more."""


class SimulatedHandler:
    """Runs callbacks of answers on one task, and those of watches on another."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._answers = SimulatedQueue()
        self._events = SimulatedQueue()
        self._threads: list[SimulatedThread] = []

    def start(self) -> None:
        if self._threads:
            return
        for duty, jobs in (("answers", self._answers), ("watches", self._events)):
            thread = SimulatedThread(target=_run_jobs, args=(jobs,), name=f"{self._label}-{duty}")
            self._threads.append(thread)
            thread.start()

    def stop(self, timeout_s: float = 1.0) -> None:
        threads, self._threads = self._threads, []
        if threads:
            self._answers.put(None)
            self._events.put(None)
        for thread in threads:
            if thread is not current_thread():
                thread.join(timeout_s)

    def complete(self, job: Callable[[], object]) -> None:
        """Run ``job`` on the task of answers; if that task has ended, run it here, at once."""
        if self._threads:
            self._answers.put(job)
        else:
            _contained(job)

    def watch(self, job: Callable[[], object]) -> None:
        """Run ``job`` on the task of watches."""
        self._events.put(job)


def _run_jobs(jobs: SimulatedQueue) -> None:
    while (job := jobs.get()) is not None:
        _contained(job)


def _contained(job: Callable[[], object]) -> None:
    try:
        job()
    except Exception as error:  # noqa: BLE001 - as the real one: logged there, noted here
        running().process.world.note("callback failed", error=repr(error))


class SimulatedClient:
    """One client with one session after another; see the module."""

    def __init__(
        self,
        network: Network,
        address: Address,
        *,
        timeout_s: float,
        security: Security,
        label: str,
        on_state: Callable[[Any, str], object],
        on_event: Callable[[int, str], object],
        on_end: Callable[[], object],
        tls: object = None,
        credentials: Credentials | None = None,
        predecessor: SimulatedClient | None = None,
    ) -> None:
        self._network = network
        self._world = network.world
        self._process: Process = running().process
        self._now_s = self._process.clock_s
        self._on_state = on_state
        self._on_event = on_event
        self._on_end = on_end
        self._asked_s = timeout_s
        self.timeout_s: float = timeout_s if predecessor is None else predecessor.timeout_s
        self.attempts = 0
        self.auth_failed = False
        self.kazoo_log = SimpleNamespace(trouble="")
        self.default_acl = OPEN_ACL_UNSAFE
        self.ended = SimulatedEvent()
        self.live = SimulatedEvent()
        self.handler = SimulatedHandler(label)
        self.connection = self
        self.inbox = SimulatedQueue()
        self.client_state: str = KeeperState.CLOSED
        self.is_session_closed = False
        self._label = label
        self._said = ""
        self._session = credentials
        self._last_zxid = 0
        self._stopping = False
        self._accepts = False
        self._queue: deque[tuple[Any, Any]] = deque()
        self._in_flight: deque[tuple[Any, Any, int]] = deque()
        self._data_watches: dict[str, dict[Any, None]] = {}
        self._child_watches: dict[str, dict[Any, None]] = {}
        self._xid = 0
        self._liveness = Liveness(timeout_s, self._now_s())
        self._is_pinging = False
        self._is_waiting = False
        self.echoes = Echoes(NEVER, timeout_s)
        self._last_sent_s = 0.0
        self._wire: Connection | None = None
        self._thread: SimulatedThread | None = None

    # -- what a session asks -----------------------------------------------------------------------

    @property
    def resolved(self) -> list[tuple[str, int]]:
        return [(f"10.0.0.{one}", 2181) for one in self._network.servers]

    @property
    def connected(self) -> bool:
        return self.live.is_set()

    def has_unread(self) -> bool:
        return not self._is_waiting or not self.inbox.empty()

    @property
    def credentials(self) -> Credentials | None:
        return self._session

    def drop(self) -> None:
        """Give the present connection up."""
        self.inbox.put(_Wake.DROP)

    def is_connection_thread(self) -> bool:
        task = self._world.current
        return task is not None and task.thread is self._thread is not None

    def start_async(self) -> SimulatedEvent:
        """Begin to connect; the event is set while connected."""
        if self._thread is None:
            self.handler.start()
            self._thread = SimulatedThread(target=self._serve, name=f"{self._label}-connection")
            self._thread.start()
        return self.live

    def submit(self, request: Any, reply: Any) -> None:
        """Send ``request``, or fail ``reply`` at once if there is no connection."""
        world = self._world
        world.countdown -= 1
        if world.countdown <= 0:
            world.preempt()
        if not self._accepts:
            reply.set_exception(NotSent())
            return
        self._queue.append((request, reply))
        if self._is_waiting and not self.inbox.queue:
            self._send_queued()  # what the connection's task would do at once
        elif len(self._queue) == 1:
            self.inbox.put(_Wake.WAKE)

    def finish(self, *, timeout_s: float, ends_session: bool = True) -> bool:
        """Close the session and end the tasks; return whether a server confirmed the end."""
        until_s = self._now_s() + timeout_s
        was_accepting, self._accepts = self._accepts, False
        self._stopping = True
        is_outside = not self.is_connection_thread()
        if ends_session and was_accepting and not self.ended.is_set() and is_outside:
            self._queue.append((CloseInstance, None))
            self.inbox.put(_Wake.WAKE)
            self.ended.wait(max(0.0, until_s - self._now_s()))
        if not self.ended.is_set():
            self.inbox.put(_Wake.DROP)
        if self._thread is not None and is_outside:
            self._thread.join(max(until_s, self._now_s() + 0.3) - self._now_s())
        self._fail_all()
        self.handler.stop(timeout_s=0.1)
        return self.is_session_closed

    # -- the task of the connection ----------------------------------------------------------------

    def _serve(self) -> None:
        retry_s = _RETRY_FIRST_S
        while not self._stopping:
            servers = list(self._network.servers)
            while servers and not self._stopping:
                server = servers.pop(int(self._world.network() * len(servers)))
                if self._attempted(server):
                    retry_s = _RETRY_FIRST_S
            if not self._stopping:
                # kazoo draws the pause from the upper half
                self._rest(retry_s * (0.6 + 0.4 * self._world.network()))
                retry_s = min(_RETRY_MOST_S, 2 * retry_s)
        self._become(KeeperState.CLOSED)
        self._fail_all()
        self.ended.set()
        self._on_end()

    def _rest(self, seconds: float) -> None:
        until_s = self._now_s() + seconds
        while not self._stopping and (left_s := until_s - self._now_s()) > 0:
            self._next(left_s)  # wake-ups of a client without a connection say nothing

    def _attempted(self, server: int) -> bool:
        """Connect to ``server`` and serve the connection; return whether a connection was made."""
        self.attempts += 1
        if self.client_state != KeeperState.CONNECTING:
            self._become(KeeperState.CONNECTING)
        connected = False
        self.inbox = SimulatedQueue()  # nothing of a former connection
        wire = self._network.open(self._process, server, partial(self._arrived, self.inbox))
        self._wire = wire
        try:
            connected = self._connect(wire)
            if connected:
                self._converse(wire)
        except _Dropped as exc:
            self.kazoo_log.trouble = str(exc)
            if self.client_state != KeeperState.CONNECTING:
                self._become(KeeperState.CONNECTING)
        finally:
            wire.close()
            self._wire = None
        return connected

    def _arrived(self, inbox: SimulatedQueue, message: Any) -> None:
        """Take in an answer at once while the connection's task waits for just that; any other
        message waits for the task.
        """
        is_answer = type(message) is ServerAnswer and self._accepts and not self._process.frozen
        if is_answer and self._is_waiting and inbox is self.inbox and not inbox.queue:
            self._heard(message)
        else:
            inbox.put(message)

    def _connect(self, wire: Connection) -> bool:
        session = self._session
        wire.hello(
            Hello(
                0 if session is None else session.session_id,
                b"" if session is None else session.password,
                self._asked_s,
                self._last_zxid,
            )
        )
        limit_s = connect_limit_s(self.timeout_s, len(self._network.servers))
        began_s = self._now_s()
        until_s = began_s + limit_s
        while True:
            answer = self._next(until_s - self._now_s())
            if answer is None:
                raise _Dropped("no answer to the connect request in time")
            if isinstance(answer, Hungup):
                raise _Dropped("the server refused the connection")
            if isinstance(answer, Refused):
                self._become(KeeperState.EXPIRED_SESSION)
                return False
            if isinstance(answer, Connected):
                break
            if answer is _Wake.DROP:
                raise _Dropped("closed while connecting")
        self._session = Credentials(answer.session_id, answer.password)
        self.timeout_s = answer.timeout_s
        self._liveness = Liveness(self.timeout_s, self._now_s())
        self.echoes = Echoes(began_s, self.timeout_s)
        self._xid, self._is_pinging = 0, False
        self._last_sent_s = self._now_s()
        self._become(KeeperState.CONNECTED)
        if self._stopping:
            self._queue.append((CloseInstance, None))
            self._send_queued()
        return True

    def _next(self, timeout_s: float) -> Any:
        """The next message or wake-up within ``timeout_s``; else ``None``."""
        inbox = self.inbox
        if not inbox.queue:
            if timeout_s <= 0.0:
                return None
            self._is_waiting = True
            found = inbox.await_one(timeout_s)
            self._is_waiting = False
            if not found:
                return None
        return inbox.get()

    def _converse(self, wire: Connection) -> None:
        read_s, now_s = self.timeout_s * 2 / 3, self._now_s
        while True:
            jitter_s = (1 + int(self._world.network() * 40)) / 100.0
            sent_s = self._last_sent_s
            deadline_s = sent_s + read_s / 2 - jitter_s
            message = self._next(max(deadline_s - now_s(), jitter_s))
            if message is None:
                if self._last_sent_s != sent_s:
                    continue  # a request was sent meanwhile
                if self._is_pinging:
                    raise _Dropped("outstanding heartbeat ping not received")
            elif message is _Wake.WAKE:
                self._send_queued()
                continue
            elif message is _Wake.DROP:
                raise _Dropped("dropped")
            elif message is _Wake.SILENT:
                raise _Dropped("no answer, with requests waiting")
            elif self._heard(message):
                self._become(KeeperState.CLOSED)
                return
            at_s = now_s()
            if at_s >= deadline_s:
                self._liveness.sent(at_s)
                self._is_pinging = True
                self.echoes.sent(at_s)
                wire.send(_PING_XID, PingInstance)
                self._last_sent_s = at_s

    def _send_queued(self) -> None:
        wire, at_s = self._wire, self._now_s()
        assert wire is not None
        if self._liveness.is_dead(at_s) and self.inbox.empty():
            self.inbox.put(_Wake.SILENT)
            return
        queue = self._queue
        if queue:
            self.echoes.sent(at_s, len(queue))
        while queue:
            request, reply = queue.popleft()
            self._xid += 1
            self._in_flight.append((request, reply, self._xid))
            wire.send(self._xid, request)
        self._liveness.sent(at_s)
        self._last_sent_s = at_s

    def _heard(self, message: Any) -> bool:
        """Take in one message; return whether it says that the session was closed, as we asked."""
        if isinstance(message, Hungup):
            raise _Dropped("the server closed the connection")
        if isinstance(message, ServerEvent):
            if not self._stopping:
                self._on_event(message.kind, message.path)
                self._tell_one_shots(message.kind, message.path)
        elif message.xid == _PING_XID:
            self._is_pinging = False
        else:
            if self._answered(message):
                self.is_session_closed = True
                return True
        waiting, at_s = len(self._in_flight) + self._is_pinging, self._now_s()
        self.echoes.read(at_s, waiting)
        if not self.inbox.queue:
            self._liveness.heard(at_s, still_waiting=waiting > 0)
        return False

    def _answered(self, answer: Any) -> bool:
        request, reply, xid = self._in_flight.popleft()
        if answer.zxid > 0:
            self._last_zxid = answer.zxid
        assert xid == answer.xid, f"{request!r}: answer {answer.xid} to request {xid}"
        if reply is not None:
            if not answer.error_code:
                reply.set(answer.value)
                if getattr(request, "watcher", None):
                    self._watch(request)
            elif answer.error_code == _NO_NODE and request.type == Exists.type:
                reply.set(None)
                if request.watcher:
                    self._watch(request)
            else:
                reply.set_exception(EXCEPTIONS[answer.error_code]())
        return request is CloseInstance

    # -- watches -----------------------------------------------------------------------------------

    def _watch(self, request: Any) -> None:
        if not self._stopping:
            is_list = isinstance(request, GetChildren)
            kept = self._child_watches if is_list else self._data_watches
            kept.setdefault(request.path, {})[request.watcher] = None

    def _tell_one_shots(self, kind: int, path: str) -> None:
        told: dict[Any, None] = {}
        if kind in (1, 2, 3):
            told.update(self._data_watches.pop(path, {}))
        if kind in (2, 4):
            told.update(self._child_watches.pop(path, {}))
        event = _WatchEvent(_EVENT_TYPES[kind], path)
        for watcher in told:
            self.handler.watch(lambda watcher=watcher: watcher(event))  # type: ignore[misc]

    def _forget_watches(self) -> None:
        watchers = [
            watcher
            for kept in (self._child_watches, self._data_watches)
            for of_path in kept.values()
            for watcher in of_path
        ]
        self._child_watches, self._data_watches = {}, {}
        event = _WatchEvent("NONE", None)
        for watcher in watchers:
            self.handler.watch(lambda watcher=watcher: watcher(event))  # type: ignore[misc]

    # -- states ------------------------------------------------------------------------------------

    def _become(self, state: str) -> None:
        """Change the state, tell the listener, and fail requests, in the same cases as kazoo."""
        before = self.client_state
        if before == state:
            return
        ended = (KeeperState.EXPIRED_SESSION, KeeperState.CLOSED, KeeperState.AUTH_FAILED)
        self.client_state = state
        self._accepts = state == KeeperState.CONNECTED
        if state == KeeperState.CONNECTING:
            _fail(self._queue, NotSent())
            if before in ended:
                return
        if state == KeeperState.CONNECTED:
            self.live.set()
            self._tell("CONNECTED")
        elif state in ended:
            self.live.clear()
            self._tell("LOST")
            is_expired = state == KeeperState.EXPIRED_SESSION
            self._fail_all(SessionExpiredError() if is_expired else ConnectionLoss())
            self._forget_watches()
            self._session = None
        else:
            self.live.clear()
            _fail(self._in_flight, ConnectionLoss())
            self._tell("SUSPENDED")
            self._forget_watches()

    def _tell(self, state: str) -> None:
        if state == self._said:
            return
        self._said = state
        self._on_state(self, state)

    def _fail_all(self, error: Exception | None = None) -> None:
        _fail(self._queue, error or NotSent())
        _fail(self._in_flight, error or ConnectionLoss())


def _fail(waiting: deque[Any], error: Exception) -> None:
    while waiting:
        _, reply, *_ = waiting.popleft()
        if reply is not None:
            reply.set_exception(error)


class SimulatedEnder:
    """Ends sessions from outside, with the interface of
    ``leaderq.zookeeper.ending.SessionEnder``.
    """

    def __init__(self, network: Network) -> None:
        self._network = network

    def know(self, addresses: Iterable[tuple[str, int]]) -> None:
        """Addresses play no part here."""

    def end(
        self,
        credentials: Credentials,
        *,
        timeout_s: float,
        session_timeout_s: float = 10.0,
        patient: bool = True,
    ) -> bool:
        """End the session; return, within ``timeout_s``, whether it is certainly over."""
        process = running().process
        until_s = process.clock_s() + timeout_s
        while True:
            answers = SimulatedQueue()
            wires = []
            for server in self._network.servers:
                wire = self._network.open(process, server, answers.put)
                wires.append(wire)
                wire.hello(
                    Hello(credentials.session_id, credentials.password, session_timeout_s, 0)
                )
                wire.send(1, CloseInstance)
                if self._is_over(answers, min(until_s, process.clock_s() + 0.1), process):
                    for one in wires:
                        one.close()
                    return True
            is_over = self._is_over(answers, min(until_s, process.clock_s() + 1.0), process)
            for one in wires:
                one.close()
            if is_over or not patient or process.clock_s() >= until_s:
                return is_over

    def _is_over(self, answers: SimulatedQueue, until_s: float, process: Process) -> bool:
        while (left_s := until_s - process.clock_s()) > 0:
            try:
                answer = answers.get(timeout=left_s)
            except queue.Empty:
                return False
            if isinstance(answer, Refused):
                return True
            if isinstance(answer, ServerAnswer) and answer.xid == 1:
                return True
        return False
