"""A ZooKeeper session that says clearly what it knows and what it does not.

The servers are authoritative about the session. Only kazoo's connection thread hears them, and this
class tells what it heard, in order. ``CONNECTED`` is about the past, ``SUSPENDED`` says nothing
about the session, ``LOST`` is certain. Every wait is bounded, no request waits for a connection,
and no request is retried here: only the caller knows whether that is safe.

=======================  ===========================================================================
what happens             what a session does
=======================  ===========================================================================
connection breaks        SUSPENDED; what was in flight fails with ConnectionLost, what was not sent
                         with NotConnected
a server answers again   CONNECTED, same id, once it has accepted the credentials; persistent
                         watches are set again. If the session expired: LOST, then CONNECTED, new id
server silent for 2T/3   the connection is dropped, in use or idle (see ``connection.Liveness``)
credentials refused      LOST; tried again, with growing pauses, until the servers accept them
client beyond repair     replaced (see ``client.ClientSupervisor``): LOST, then CONNECTED with a new
                         id; the old session is ended if that is possible
long outage              nothing but waiting: sessions outlive a lost quorum
close                    the session is ended on the servers, through whichever answers, in time
fork                     the child's copy refuses all use
=======================  ===========================================================================

Each hazard of kazoo and its answer is listed in ``docs/design/zookeeper-session.md``.
"""

from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kazoo.protocol.states import KeeperState

from leaderq import errors
from leaderq.base import clock, host
from leaderq.base.arguments import at_least, is_number, require
from leaderq.base.lazy import provided
from leaderq.threads import Listeners, primitives
from leaderq.threads.waker import bounded_s
from leaderq.zookeeper import transport
from leaderq.zookeeper.client import Client, ClientSupervisor
from leaderq.zookeeper.paths import Address, parent_of, parsed_address
from leaderq.zookeeper.proof import Echoes, Shares, shares_of
from leaderq.zookeeper.pulse import Pulse
from leaderq.zookeeper.requests import Answer, Reply, Requests, failed_future
from leaderq.zookeeper.security import NO_SECURITY, Credentials, Security
from leaderq.zookeeper.translation import translated
from leaderq.zookeeper.watching import PersistentWatches, Subscription, Watch
from leaderq.zookeeper.wire import MAX_REQUEST_BYTES, GetData, WatchMode

if TYPE_CHECKING:
    from leaderq.async_term import AsyncTerm
    from leaderq.events import EventBus
    from leaderq.term import Term

log = logging.getLogger("leaderq.zookeeper")
state_log = logging.getLogger(__name__)
"""Changes of state only: the command line, which has events for them, raises its level."""
_NOT_ENDED = "ZooKeeper session not ended, it will expire id=%#x"
T = TypeVar("T")
DEFAULT_TIMEOUT_S = 10.0
DEFAULT_CONNECT_TIMEOUT_S = 15.0
CLOSE_TIMEOUT_S = 5.0
_LONGEST_S = (2**31 - 1) / 1000
"""The longest session time-out that fits into a request."""
REPLACE_TIMEOUT_S = 1.0
"""How long a replaced client may take to close its session, itself and through another one."""


class SessionState(enum.Enum):
    """The state of a :class:`~leaderq.zookeeper.Session`; three of them have the names that kazoo
    uses.

    ``CONNECTED`` proves neither leadership nor that the next request will arrive.
    """

    CONNECTED = "connected"
    """A server answers, or did until now."""
    SUSPENDED = "suspended"
    """No connection. The session, with its ephemeral znodes, may live on at the servers."""
    LOST = "lost"
    """This session id is over, and its ephemeral znodes. ``CONNECTED`` is a new session."""
    CLOSED = "closed"
    """Closed by its owner, for good; or this process is a fork of the one that opened it."""


Listener = Callable[[SessionState], object]
_CLOSED = SessionState.CLOSED  # an enum's look-up costs each request half a microsecond
_LOG_LINES = {
    SessionState.CONNECTED: (logging.INFO, "ZooKeeper session connected"),
    SessionState.SUSPENDED: (logging.WARNING, "ZooKeeper connection lost, connecting again"),
    SessionState.LOST: (logging.WARNING, "ZooKeeper session lost, a new one follows"),
}


class LeadershipBlock(Protocol):
    """The object for ``with`` and ``async with``; see :meth:`Session.leadership`."""

    def __enter__(self) -> Term: ...
    def __exit__(self, *error: Any) -> None: ...
    async def __aenter__(self) -> AsyncTerm: ...
    async def __aexit__(self, *error: Any) -> None: ...


class Session(Requests):
    """A started ZooKeeper session; get one from :func:`leaderq.connect`, or from
    :func:`leaderq.zookeeper.as_session`.

    *Guarantees:* every method returns in bounded time; states are announced in order; the password
    of the session appears in no log.
    *Not guaranteed:* that ``CONNECTED`` is still true at the moment you read it.
    """

    def __init__(
        self,
        address: Address,
        *,
        timeout_s: float,
        security: Security,
        name: str = "",
        max_request_bytes: int = MAX_REQUEST_BYTES,
        tick_s: float | None = None,
    ) -> None:
        self.max_request_bytes = max_request_bytes
        self._tick_s = tick_s
        self._servers = address
        self._chroot = address.chroot
        self._asked_timeout_s = timeout_s
        self._security = security
        self._tls = security.ssl_context()
        self._name = name or "zookeeper"
        self._pid = host.pid()
        self._lock = primitives.Lock()
        # Held while a client is replaced or ended, by whoever does so; a listener that is told of
        # that may close the session.
        self._replacing = primitives.RLock()
        self._state = SessionState.SUSPENDED
        self._credentials: Credentials | None = None
        self._former: Credentials | None = None
        """Those of a session that is not ours any more, and may still live on the servers."""
        self._closed = primitives.Event()
        self._is_over = False
        self._listeners: Listeners[SessionState] = Listeners(self._name)
        self._watches = PersistentWatches(
            send=lambda request, path: self._send(request, bool, path),
            watch=lambda job: self._client.handler.watch(job),
            local_path=self._local_path,
        )
        self._ender = transport.new_ender(address, security=security)
        self._supervisor = ClientSupervisor(self._name, self._client_to_watch, self.replace)
        self._client = self._new_client()
        self.pulse = Pulse(self._name, self, let_go=self._supervisor.wake)
        """Proves that the session lives, which no acknowledged write does."""

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Session({self.address!r}, {self._state.name}, id={self.id and hex(self.id)})"

    # -- what it is --------------------------------------------------------------------------------

    @property
    def address(self) -> str:
        """The servers and the chroot, in the form that ``connect`` takes; has no secret."""
        return str(self._servers)

    @property
    def timeout_s(self) -> float:
        """T: the session time-out in seconds that the servers granted at the newest connection.

        Each connection may change it. The new value can be read here before ``CONNECTED`` is
        announced.
        """
        return self._client.connection.timeout_s

    @property
    def shares(self) -> Shares:
        """The shares of T that parts of leaderq wait for, in seconds."""
        return shares_of(self._client.connection.timeout_s, self._tick_s)

    @property
    def echoes(self) -> Echoes:
        """Which requests the server of the newest connection has answered, and when."""
        return self._client.connection.echoes

    @property
    def resolved_servers(self) -> list[tuple[str, int]]:
        """The numeric addresses of the servers and their ports, as last resolved."""
        return self._client.resolved

    @property
    def id(self) -> int | None:
        """The id of the session, as ``Stat.ephemeral_owner`` has it; ``None`` between the end of a
        session and the beginning of the next.
        """
        credentials = self._credentials
        return None if credentials is None else credentials.session_id

    @property
    def credentials(self) -> Credentials | None:
        """The secret with which another process can end this session; ``None`` while ``id`` is
        ``None``.
        """
        return self._credentials

    @property
    def state(self) -> SessionState:
        """The newest state that was heard of. In a forked process it is ``CLOSED``."""
        return SessionState.CLOSED if host.has_forked_from(self._pid) else self._state

    def check_open(self, path: str | None = None) -> None:
        """Raise :class:`~leaderq.errors.SessionClosed`, with the reason, if this session cannot be
        used any more: it was closed, or this process was forked from the one that opened it.
        """
        if (refusal := self._refusal(path)) is not None:
            raise refusal

    @property
    def is_heard_out(self) -> bool:
        """Whether there is a connection, and all that has come over it was read. Cheap; sends no
        request.
        """
        return self._state is SessionState.CONNECTED and not self._client.connection.has_unread()

    def add_listener(self, listener: Listener) -> None:
        """Call ``listener(state)`` at every change of state. It runs on a thread that must not be
        blocked: set an event, and return; wait for no request. If it raises, that is logged, and it
        is called at the next change, too.
        """
        self._listeners.add(listener)

    def remove_listener(self, listener: Listener) -> None:
        """Undo :meth:`add_listener`; a call under way may still finish."""
        self._listeners.remove(listener)

    # -- persistent watches ------------------------------------------------------------------------

    def watch_tree(
        self, path: str, callback: Watch, *, timeout_s: float | None = None
    ) -> Subscription:
        """Call ``callback(WatchEvent)`` for everything that is created, changed or deleted at or
        below ``path``, until the subscription is closed. ``path`` need not exist.

        ``callback`` is called on the thread of watches, in the order in which things happened; do
        not block that thread for long. A ``SESSION`` event says that the connection was lost and
        the watch is set again. Events may have been missed in between, so read again.

        *Not guaranteed:* before ZooKeeper 3.9, several watches (of this method, :meth:`watch_node`
        and one-shot ``watch``) on one path in one session: only the newest one gets events.

        :raises ConnectionLost: there is no connection, or no answer within ``timeout_s`` seconds;
            no watch is left behind.
        """
        return self._subscribe(path, WatchMode.TREE, callback, timeout_s)

    def watch_node(
        self, path: str, callback: Watch, *, timeout_s: float | None = None
    ) -> Subscription:
        """Do what :meth:`watch_tree` does, for one znode and the names of its children
        (``CHILDREN``).
        """
        return self._subscribe(path, WatchMode.NODE, callback, timeout_s)

    def _subscribe(
        self, path: str, mode: int, callback: Watch, timeout_s: float | None
    ) -> Subscription:
        subscription, answer = self._watches.add(path, self._server_path(path), mode, callback)
        try:
            self._wait(answer, timeout_s, path)
        except BaseException:
            subscription.close()
            raise
        return subscription

    # -- leadership --------------------------------------------------------------------------------

    def leadership(
        self,
        career: str,
        *,
        id: str | None = None,
        root: str = "/leaderq",
        timeout_s: float | None = None,
        events: EventBus | None = None,
    ) -> LeadershipBlock:
        """Stand for election as ``career``, and lead in the body of the block::

            with session.leadership("reports") as term:
                while term.wait(60):
                    write_report(term.number)

        Waits to be elected, ``timeout_s`` seconds at most (``None``: for ever). ``id`` is shown to
        operators and must differ between candidates; by default host, process and a random number.
        ``root`` is the parent znode of all careers. ``leaderq status``, ``pause``, ``transfer`` and
        the rest work as for any leader. In a coroutine write ``async with``, which does not stop
        the event loop and is given an :class:`~leaderq.AsyncTerm`: ``await term.wait(60)``.

        *Guarantees:* the body begins in a term that is on and not paused. However the body is left
        (end, ``break``, ``return``, any exception, Ctrl-C), within seconds the leadership is
        released and the candidate leaves the line. Once the lease is over ``term.check()`` and
        ``term.write`` raise ``Deposed``, ``term.wait`` returns ``False``, and ``term.reason`` says
        why. *Not guaranteed:* that a body that checks none of these stops before the next leader
        begins: nothing outside this program can stop it, as the guardian of ``leaderq run`` would.
        Nor that the next candidate leads at once if this process is killed: it leads after
        ``session.timeout_s`` seconds. The body is not called again after its term: see
        :meth:`terms`.

        :raises ConfigurationError: a name cannot be used.
        :raises NotElected: the candidate was not elected within ``timeout_s``.
        :raises SessionClosed: this session was closed.
        :raises WouldDeadlock: this thread leads or waits for the same career in a block around this
            one, or it runs an event loop.
        """
        made: LeadershipBlock = provided("leadership").Leadership(
            self, career, id=id, root=root, timeout_s=timeout_s, events=events
        )
        return made

    def terms(
        self,
        career: str,
        *,
        id: str | None = None,
        root: str = "/leaderq",
        cool_off_s: float = 1.0,
        events: EventBus | None = None,
    ) -> Generator[Term, None, None]:
        """Stand for election as ``career`` again and again, and lead in the body of a loop::

            for term in session.terms("reports"):
                while term.wait(60):
                    write_report(term.number)

        A term is released when the body is left or asks for the next term. Before the candidate
        stands again it cools off: for ``cool_off_s`` seconds if the body left a term that was still
        on, or resigned from it; longer each time it was deposed; or as long as ``term.resign``
        says. ``term.finish()`` ends the loop.

        *Guarantees:* as :meth:`leadership`, for each term.
        *Not guaranteed:* that operators can tell an error from a ``break``: they see *withdrawn*
        for both. In a program that keeps the iterator, the last term lasts until the iterator is
        closed (``contextlib.closing``).
        """
        made: Generator[Term, None, None] = provided("leadership").terms(
            self, career, id=id, root=root, cool_off_s=cool_off_s, events=events
        )
        return made

    # -- its beginning -----------------------------------------------------------------------------

    def _begin(self, timeout_s: float) -> None:
        """Connect and create the chroot, within ``timeout_s`` seconds; on an error close
        everything. Raises what :func:`connect` raises.
        """
        deadline = clock.awake_s() + timeout_s
        try:
            connected = self._client.start_async()
            while True:
                self._await_connection(connected, deadline, timeout_s)
                try:
                    self._ensure_chroot(deadline)
                    break
                except errors.ConnectionLost as exc:
                    if clock.awake_s() >= deadline:
                        raise self._unreachable(timeout_s) from exc
            self._supervisor.start()
        except BaseException:
            self._close(timeout_s=1.0)
            raise

    def _await_connection(self, connected: Any, deadline: float, timeout_s: float) -> None:
        client, is_connected = self._client, False
        while not is_connected and clock.awake_s() < deadline and not client.ended.is_set():
            is_connected = connected.wait(0.02) and self._state is SessionState.CONNECTED
        if client.auth_failed:
            who = self._security.user or self._security.principal or "nobody"
            trouble = client.kazoo_log.trouble or "no reason given"
            raise errors.AccessRefused(
                f"ZooKeeper at {self.address!r} refused user {who!r} ({self._security.mechanism}):"
                f" {trouble}; check user, password and mechanism"
            )
        if not is_connected:
            raise self._unreachable(timeout_s)

    def _ensure_chroot(self, deadline: float) -> None:
        chroot, self._chroot = self._chroot, ""
        path = chroot or "/"
        try:
            # Too old servers refuse a multiRead: this finds that out as well.
            (found,) = self.multi_read(
                [GetData(path)], timeout_s=max(0.1, deadline - clock.awake_s())
            )
            if isinstance(found, errors.NoNode):
                left_s = max(0.1, deadline - clock.awake_s())
                self.ensure_path(path, shared=parent_of(path), timeout_s=left_s)
        except errors.NoNode as exc:
            what = f"the chroot {chroot!r} of {self.address!r} could not be created"
            raise errors.ZooKeeperError(f"{what}: someone deletes it", path=chroot) from exc
        finally:
            self._chroot = chroot

    def _unreachable(self, waited_s: float) -> errors.ServersUnreachable:
        trouble = self._client.kazoo_log.trouble
        question = "is ZooKeeper listening there, and may this host reach it?"
        if self.address == "127.0.0.1:2181":  # the default: perhaps of somebody who tries things
            question += " leaderq servers up starts one to try things with"
        hint = f"the last attempt said: {trouble}; {question}" if trouble else ""
        return errors.ServersUnreachable("ZooKeeper", self.address, waited_s=waited_s, remedy=hint)

    # -- its life ----------------------------------------------------------------------------------

    def drop_connection(self) -> None:
        """Break the connection and connect again, with the same session; for a connection that
        seems dead although there was no error. Never blocks. Does nothing unless connected.
        """
        self.check_open()
        client = self._client
        if self._state is SessionState.CONNECTED:
            self._supervisor.expect_attempt(client)
            client.connection.drop()

    def replace(self, reason: str) -> None:
        """Begin a new session with a new client: ``LOST``, then ``CONNECTED``. The old session is
        ended on the servers if that takes no longer than a second or two; otherwise it expires
        after T. While somebody relies on the old session (holds its pulse) it is not ended, because
        a leader's code may still run.
        """
        self.check_open()
        with self._replacing:
            with self._lock:
                if self._state is SessionState.CLOSED:
                    return
                old = self._client
                self._client = self._new_client(old)
                if self._state is not SessionState.LOST:
                    self._listeners.put(SessionState.LOST)
                self._state = SessionState.LOST
                # A client that died takes its connection along, not its session.
                self._disown_session()
            log.warning("ZooKeeper client replaced client=%s reason=%s", self._label(old), reason)
            self.pulse.look()
            self._listeners.deliver()
            if self.pulse.is_held:
                old.finish(timeout_s=REPLACE_TIMEOUT_S, ends_session=False)
            elif self._end(old, self._former, REPLACE_TIMEOUT_S):
                self._former = None
            with self._lock:
                is_wanted = self._state is not SessionState.CLOSED
            if is_wanted:
                self._client.start_async()

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """End the session, so that its ephemeral znodes vanish; release its threads and sockets.

        Returns ``True`` if the session is certainly over; ``False`` if it may live on until it
        expires, T after a server last heard of it. Takes at most ``timeout_s`` seconds, and a
        little more only if a callback blocks a thread. May be called again, from any thread, in any
        state.
        """
        return self._close(timeout_s)

    def _close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        if host.has_forked_from(self._pid):
            return False
        deadline = clock.awake_s() + bounded_s(timeout_s)
        with self._lock:
            if self._state is not SessionState.CLOSED:
                self._state = SessionState.CLOSED
                self._listeners.put(SessionState.CLOSED)
                self._disown_session()
        # Told before it is done: code that relies on an ephemeral znode of this session must stop
        # before the znode can vanish.
        self.pulse.look()
        self._listeners.deliver()
        self._supervisor.stop()
        self.pulse.stop()
        # Whoever has it does the same, or replaces the client: that is bounded.
        if self._replacing.acquire(timeout=max(0.0, deadline - clock.awake_s())):
            try:
                if not self._closed.is_set():
                    left_s = max(0.0, deadline - clock.awake_s())
                    self._is_over = self._end(self._client, self._former, left_s)
                    if self._former is not None and not self._is_over:
                        log.warning(_NOT_ENDED, self._former.session_id)
                    self._closed.set()
            finally:
                self._replacing.release()
        return self._is_over

    def _disown_session(self) -> None:
        """Note that the present session is not ours any more; it may still live. Under the lock."""
        self._former, self._credentials = self._credentials or self._former, None

    def _end(self, client: Client, credentials: Credentials | None, timeout_s: float) -> bool:
        """Close ``client``, within ``timeout_s`` seconds; return whether its session is certainly
        over.
        """
        deadline = clock.awake_s() + timeout_s
        if client.finish(timeout_s=timeout_s / 2) or credentials is None:
            return True
        if client.auth_failed:
            return False
        # Its connection is gone or silent. Another connection may still reach a server, so that
        # nobody has to wait until the session expires.
        self._ender.know(client.resolved)
        return self._ender.end(
            credentials,
            timeout_s=max(0.0, deadline - clock.awake_s()),
            session_timeout_s=client.connection.timeout_s,
            patient=False,
        )

    # -- its client --------------------------------------------------------------------------------

    def _new_client(self, predecessor: Client | None = None) -> Client:
        return transport.new_client(
            self._servers,
            timeout_s=self._asked_timeout_s,
            security=self._security,
            label=f"leaderq-{self._name}",
            on_state=self._heard,
            on_event=self._watches.route,
            on_end=self._supervisor.wake,
            tls=self._tls,
            predecessor=predecessor,
        )

    def _client_to_watch(self) -> Client | None:
        is_over = self._former is not None and not self.pulse.is_held
        if self._state is SessionState.CONNECTED and is_over:
            self._end_former()
        return None if self._state is SessionState.CLOSED else self._client

    def _end_former(self) -> None:
        """End the session whose client was replaced, if it could not be ended at that time."""
        with self._replacing:
            former, self._former = self._former, None
        if former is None:
            return
        timeout_s = REPLACE_TIMEOUT_S
        if not self._ender.end(former, timeout_s=timeout_s, session_timeout_s=self.timeout_s):
            log.warning(_NOT_ENDED, former.session_id)

    def _heard(self, client: Client, kazoo_state: str) -> None:
        """Take note of a client's new state, unless the client was replaced; runs on the connection
        thread.
        """
        state = SessionState[kazoo_state]
        with self._lock:
            is_news = client is self._client and self._state not in (SessionState.CLOSED, state)
            if is_news:
                self._state = state
                # Under the lock: no two threads may tell their changes in the wrong order.
                self._listeners.put(state)
                if state is SessionState.CONNECTED:
                    self._credentials = client.credentials
                elif state is SessionState.LOST:
                    self._disown_session()
                    if client.client_state == KeeperState.EXPIRED_SESSION:
                        self._former = None
        if is_news:
            level, line = _LOG_LINES[state]
            state_log.log(level, "%s %s", line, self._label(client))
            self.pulse.look()
            if state is SessionState.CONNECTED:
                self._watches.restore()
            self._listeners.deliver()
        self._supervisor.wake()

    def _label(self, client: Client) -> str:
        credentials = client.credentials
        id = "" if credentials is None else f" id={credentials.session_id:#x}"
        return f"address={self.address}{id}"

    # -- sending -----------------------------------------------------------------------------------

    def _send_all(
        self, requests: Sequence[Any], convert: Callable[[Any], T], path: str | None
    ) -> primitives.Future[T]:
        client = self._client
        if (refusal := self._refusal(path)) is not None:
            return failed_future(refusal)
        answer: Answer[T] = Answer(client.handler.complete)
        for request in requests:
            is_last = request is requests[-1]
            reply = Reply(answer, convert, lambda exc: translated(exc, path), is_last)
            client.submit(request, reply)
        return answer

    def _refusal(self, path: str | None) -> errors.SessionClosed | None:
        """The error for every use of this session if it is closed or belongs to another process;
        else ``None``.
        """
        if host.has_forked_from(self._pid):
            what = f"this session belongs to process {self._pid}; connect again after the fork"
            return errors.SessionClosed(what, path=path)
        if self._state is _CLOSED:
            return errors.SessionClosed("the session was closed by its owner", path=path)
        return None


def connect(
    hosts: str,
    *,
    timeout_s: float = DEFAULT_TIMEOUT_S,
    connect_timeout_s: float = DEFAULT_CONNECT_TIMEOUT_S,
    security: Security | None = None,
    name: str = "",
    max_request_bytes: int = MAX_REQUEST_BYTES,
    tick_s: float | None = None,
) -> Session:
    """Return a started session with the ZooKeeper servers at ``hosts``:
    ``host:port,host:port/chroot`` (port 2181 unless given).

    ``timeout_s`` is the session time-out to ask for, in seconds; the servers may grant another one
    (``session.timeout_s``). ``name`` appears in the names of threads. ``max_request_bytes`` is the
    servers' ``jute.maxbuffer``. ``tick_s`` is their ``tickTime`` in seconds, if it is known:
    leadership and claims are then trusted longer while the servers are silent. A value below theirs
    is unsafe; ``leaderq doctor`` shows theirs. A chroot that is missing is created with the ACL of
    these credentials; if znodes above it are missing, any user may list and create children in
    them.

    *Guarantees:* returns or raises within ``connect_timeout_s`` and about a second; leaves no
    thread or socket behind when it raises.

    :raises ConfigurationError: the address, a time or the security cannot be used; every problem is
        named.
    :raises MissingPiece: SASL is asked for, and the extra ``leaderq[sasl]`` is not installed.
    :raises ServersUnreachable: no server answered in time.
    :raises AccessRefused: a server refused the credentials.
    :raises ZooKeeperError: the server is older than 3.6.
    """
    times = {"timeout_s": timeout_s, "connect_timeout_s": connect_timeout_s}
    if tick_s is not None:
        times["tick_s"] = tick_s
    problems = [
        f"{name}={seconds!r}: give seconds above 0, {_LONGEST_S:.0f} at most"
        for name, seconds in times.items()
        if not (is_number(seconds) and 0 < seconds <= _LONGEST_S)
    ]
    security = NO_SECURITY if security is None else security
    for check in (
        partial(parsed_address, hosts),
        security.validate,
        lambda: require(at_least("max_request_bytes", max_request_bytes, 1, "bytes")),
    ):
        try:
            check()
        except errors.ConfigurationError as exc:
            problems += exc.problems
    require(*problems)
    session = Session(
        parsed_address(hosts),
        timeout_s=timeout_s,
        security=security,
        name=name,
        max_request_bytes=max_request_bytes,
        tick_s=tick_s,
    )
    session._begin(connect_timeout_s)
    return session
