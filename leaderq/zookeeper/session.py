"""A ZooKeeper session that can be trusted to say what it does not know.

Contract. The servers are authoritative about the session; kazoo's connection thread is the only one that hears them; this
class tells what was heard, in order. ``CONNECTED`` is hearsay of the past, ``SUSPENDED`` says nothing about the session,
``LOST`` is certain. No wait is unbounded, no request waits for a connection, nothing is ever retried here: whether to
repeat a request is for those to decide who know what it means.

============================  ==========================================================================================
what happens                  what a session does
============================  ==========================================================================================
connection breaks             SUSPENDED; what was in flight fails with ConnectionLost, what was not sent with NotConnected
a server answers again        CONNECTED, same id, persistent watches set again; or, if it expired: LOST, then CONNECTED, new id
server silent for 2T/3        the connection is dropped, in use or idle (see ``Liveness``)
client beyond repair          replaced (see ``ClientSupervisor``): LOST, then CONNECTED with a new id; the old session is ended if it can be
long outage                   nothing but waiting: sessions outlive a loss of the quorum, and a new one would leave a ghost behind
close                         the session is ended on the servers, through whichever answers, within the time given
fork                          the child's copy refuses all use: two processes on one socket would corrupt each other's requests
============================  ==========================================================================================

Each hazard of kazoo and its answer is listed in ``docs/design/zookeeper-session.md``.
"""

from __future__ import annotations

import enum
import logging
import os
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar

from kazoo.security import ACL

from leaderq.errors import LeaderqError, SessionClosed
from leaderq.zookeeper.requests import Answer, Reply, Requests, failed_future
from leaderq.zookeeper.security import Credentials
from leaderq.zookeeper.translation import translated
from leaderq.zookeeper.watching import PersistentWatches, Subscription, Watch
from leaderq.zookeeper.wire import MAX_REQUEST_BYTES, Request, WatchMode


class SessionState(enum.Enum):
    """Where a :class:`~leaderq.zookeeper.Session` stands.

    ``CONNECTED`` proves only that a server answered once: it is not proof of leadership, nor that the next request arrives.
    """

    CONNECTED = "connected"
    """A server answers, or did until now."""
    SUSPENDED = "suspended"
    """No connection. The session may live on at the servers: its ephemeral znodes stand until they expire it."""
    LOST = "lost"
    """This session id is over. The next ``CONNECTED`` is a new session with a new id and none of the old ephemerals."""
    CLOSED = "closed"
    """Closed by its owner, for good."""


log = logging.getLogger(__name__)
Listener = Callable[[SessionState], object]


class Listeners:
    """Announces states to listeners in the order they came, without a lock held while a listener runs.

    States may be announced from any thread: whoever comes first delivers for those who come meanwhile.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: tuple[Listener, ...] = ()
        self._waiting: deque[SessionState] = deque()
        self._delivering = False

    def add(self, listener: Listener) -> None:
        """Tell ``listener`` of every change from now on; adding it twice tells it once."""
        with self._lock:
            if listener not in self._listeners:
                self._listeners = (*self._listeners, listener)

    def remove(self, listener: Listener) -> None:
        """Tell it no more; unknown listeners are ignored."""
        with self._lock:
            self._listeners = tuple(one for one in self._listeners if one != listener)

    def announce(self, state: SessionState) -> None:
        """Tell everyone, now or right after the changes that are being told."""
        self.put(state)
        self.deliver()

    def put(self, state: SessionState) -> None:
        """Note a change to be told by the next :meth:`deliver`; calls nobody, so it may be done under the lock that orders the changes."""
        with self._lock:
            self._waiting.append(state)

    def deliver(self) -> None:
        """Tell what is noted, unless another thread is about it: then that one goes on with ours."""
        with self._lock:
            if self._delivering:
                return
            self._delivering = True
        while True:
            with self._lock:
                if not self._waiting:
                    self._delivering = False
                    return
                state, listeners = self._waiting.popleft(), self._listeners
            for listener in listeners:
                try:
                    listener(state)
                except (Exception, SystemExit):
                    log.exception("listener %r failed on %s; the session goes on", listener, state.name)


class Link(Protocol):
    """See the module. All of it may be used from any thread, and none of it blocks but ``finish``."""

    @property
    def timeout_s(self) -> float: ...

    @property
    def acl(self) -> list[ACL]: ...

    @property
    def attempts(self) -> int: ...

    @property
    def credentials(self) -> Credentials | None: ...

    def is_connection_thread(self) -> bool: ...

    def complete(self, job: Callable[[], object]) -> None: ...

    def watch(self, job: Callable[[], object]) -> None: ...

    def submit(self, request: Request, reply: Any) -> None: ...

    def drop(self) -> None: ...

    def open(self) -> object: ...

    def finish(self, *, timeout_s: float) -> bool: ...


T = TypeVar("T")
CLOSE_TIMEOUT_S = 5.0


class Session(Requests):
    """A started ZooKeeper session; get one from :func:`leaderq.connect` or :func:`leaderq.zookeeper.as_session`.

    *Guarantees:* every method returns in bounded time; states are announced in order; the password of the session appears
    in no log.
    *Not guaranteed:* that ``CONNECTED`` means what it says at the moment you read it.
    """

    def __init__(self, *, address: str, chroot: str, max_request_bytes: int = MAX_REQUEST_BYTES) -> None:
        self.max_request_bytes = max_request_bytes
        self._address = address
        self._chroot = chroot
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._state = SessionState.SUSPENDED
        self._credentials: Credentials | None = None
        self._former: Credentials | None = None  # of the session before LOST, which the servers may still hold
        self._link: Link | None = None
        self._closed = threading.Event()
        self._is_ended = False
        self._listeners = Listeners()
        self._watches = PersistentWatches(send=self._send_watch, watch=self._run_watch, local_path=self._local_path)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self._address!r}, {self._state.name}, id={self.id and hex(self.id)})"

    # -- what it is -----------------------------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """The servers and chroot, as ``connect`` takes them; holds no secret."""
        return self._address

    @property
    def chroot(self) -> str:
        """The znode that all paths are below; ``""`` for the root."""
        return self._chroot

    @property
    def timeout_s(self) -> float:
        """The session time-out that the servers granted, in seconds: T."""
        return self._usable_link().timeout_s

    @property
    def id(self) -> int | None:
        """The session's id, as in ``Stat.ephemeral_owner``; ``None`` once it is over and until the next begins."""
        credentials = self._credentials
        return None if credentials is None else credentials.session_id

    @property
    def credentials(self) -> Credentials | None:
        """What ends this session from another process (the guardian's secret); ``None`` as for ``id``."""
        return self._credentials

    @property
    def state(self) -> SessionState:
        """The last state heard of."""
        return self._state

    def add_listener(self, listener: Listener) -> None:
        """Call ``listener(state)`` at every change of state, on a thread that must not be held up: set an event, and return.

        No request may be waited for in there. A listener that raises is logged and called again next time.
        """
        self._listeners.add(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Undo :meth:`add_listener`; a call under way may still finish."""
        self._listeners.remove(listener)

    # -- persistent watches ---------------------------------------------------------------------------------------------

    def watch_tree(self, path: str, callback: Watch, *, timeout_s: float | None = None) -> Subscription:
        """Call ``callback(WatchEvent)`` for every znode created, changed or deleted at or below ``path``, until closed.

        The znode need not exist. Runs on the thread of watches, in the order things happened; do not block it for long.
        After a reconnection one ``SESSION`` event says: the watch stands again, events may be missing, read again. Needs
        ZooKeeper 3.6 or newer.

        :raises ConnectionLost: not connected, or no answer in ``timeout_s``; no watch is left.
        """
        return self._subscribe(path, WatchMode.TREE, callback, timeout_s)

    def watch_node(self, path: str, callback: Watch, *, timeout_s: float | None = None) -> Subscription:
        """As :meth:`watch_tree`, for one znode: its creation, change, deletion, and children made or deleted
        (``CHILDREN``)."""
        return self._subscribe(path, WatchMode.NODE, callback, timeout_s)

    def _subscribe(self, path: str, mode: int, callback: Watch, timeout_s: float | None) -> Subscription:
        self._prepare_watches()
        subscription, answer = self._watches.add(path, self._server_path(path), mode, callback)
        try:
            self._wait(answer, timeout_s, path)
        except BaseException:
            subscription.close()
            raise
        return subscription

    def _prepare_watches(self) -> None:
        """For sessions whose carrier must be taught persistent watches first."""

    # -- its life -------------------------------------------------------------------------------------------------------

    def drop_connection(self) -> None:
        """Break the connection and connect again, with the same session: for a connection that seems dead but is not said
        to be.

        Never blocks. Does nothing unless connected.
        """
        self._guard()
        if self._state is SessionState.CONNECTED:
            self._usable_link().drop()

    @abstractmethod
    def replace(self, reason: str) -> None:
        """Give up this session and its client, and begin a new one: listeners hear ``LOST``, then ``CONNECTED`` when it
        stands.

        The old session is ended on the servers if that takes no longer than a second or two; else it expires after T.
        """

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """End the session on the servers, so that its ephemeral znodes vanish now, and let go of threads and sockets.

        Returns whether the session is over for certain; otherwise it expires after T.

        Takes ``timeout_s`` at most, and a little more only if a callback blocks a thread. May be called again, from any
        thread, in any state. What could not be told to any server in time expires after T.
        """
        with self._lock:
            if self._state is SessionState.CLOSED or os.getpid() != self._pid:
                is_first = False
            else:
                is_first = True
                self._state = SessionState.CLOSED
        if not is_first:
            if os.getpid() == self._pid:
                self._closed.wait(timeout_s)
            return self._is_ended
        # Said before it is done: who trusts in an ephemeral znode of this session must stop doing so before that can vanish.
        self._listeners.announce(SessionState.CLOSED)
        try:
            self._is_ended = self._finish(timeout_s)
        finally:
            self._credentials = None
            self._closed.set()
        return self._is_ended

    @abstractmethod
    def _finish(self, timeout_s: float) -> bool:
        """Let go of the carrier; whether the servers have confirmed the end of the session."""

    @property
    def resolved_servers(self) -> list[tuple[str, int]]:
        """The numeric addresses of the servers, as last resolved."""
        return []

    # -- heard from the carrier -------------------------------------------------------------------------------------------

    def _heard(self, link: Link, state: SessionState) -> None:
        """On the connection thread: note what a carrier said, unless it is one we have given up."""
        with self._lock:
            if link is not self._link or self._state in (SessionState.CLOSED, state):
                return
            self._state = state
            self._listeners.put(state)  # under the lock: no two threads may tell their changes in the wrong order
            if state is SessionState.CONNECTED:
                self._credentials = link.credentials
            elif state is SessionState.LOST:
                self._former, self._credentials = self._credentials, None
        log.log(_LEVELS[state], "ZooKeeper session %s: %s", self._label(link), _SENTENCES[state])
        if state is SessionState.CONNECTED:
            self._watches.restore()
        self._listeners.deliver()

    def _label(self, link: Link) -> str:
        credentials = link.credentials
        return f"{self._address} (id {credentials.session_id:#x})" if credentials else self._address

    # -- sending --------------------------------------------------------------------------------------------------------

    def _send(self, request: Request, convert: Callable[[Any], T], path: str | None) -> Future[T]:
        link = self._link
        if self._state is SessionState.CLOSED or link is None or os.getpid() != self._pid:
            return failed_future(self._unusable(path))
        answer: Answer[T] = Answer(link.complete)
        link.submit(request, Reply(answer, convert, lambda exc: translated(exc, path)))
        return answer

    def _send_watch(self, request: Request, path: str) -> Future[Any]:
        return self._send(request, lambda raw: raw, path)

    def _run_watch(self, job: Callable[[], object]) -> None:
        link = self._link
        if link is not None:
            link.watch(job)

    def _acl(self) -> Sequence[ACL]:
        return self._usable_link().acl

    def _default_wait_s(self) -> float:
        link = self._link
        return 10.0 if link is None else min(10.0, 2 * link.timeout_s)

    def _refuse_connection_thread(self) -> None:
        link = self._link
        if link is not None and link.is_connection_thread():
            raise RuntimeError(
                "a state listener must not wait for ZooKeeper: it runs on the thread that reads the answers; set an event"
            )

    def _guard(self) -> None:
        if self._state is SessionState.CLOSED or os.getpid() != self._pid:
            raise self._unusable(None)

    def _usable_link(self) -> Link:
        if self._link is None:
            raise self._unusable(None)
        return self._link

    def _unusable(self, path: str | None) -> LeaderqError:
        if os.getpid() != self._pid:
            return SessionClosed(f"this session belongs to process {self._pid}; connect again after the fork", path=path)
        return SessionClosed("the session was closed by its owner", path=path)


_LEVELS = {SessionState.CONNECTED: logging.INFO, SessionState.SUSPENDED: logging.WARNING, SessionState.LOST: logging.WARNING}
_SENTENCES = {
    SessionState.CONNECTED: "connected",
    SessionState.SUSPENDED: "connection lost; connecting again",
    SessionState.LOST: "over; its ephemeral znodes are gone, or will be",
}
