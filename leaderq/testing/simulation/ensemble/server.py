"""One simulated ZooKeeper server, its ends of the connections to its clients, and how it serves
them.

Answers to one client go out in the order of its requests, so a request after a write waits for the
write's commit. Reads are answered from this server's own tree, which may be older than the
leader's. The server's *role* decides how writes are agreed on: alone, leader, follower, or none
while there is no leader.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from kazoo.security import ACL, Id

from leaderq.testing.simulation.ensemble import bodies
from leaderq.testing.simulation.ensemble.messages import (
    OK,
    Code,
    Connected,
    Hello,
    Hungup,
    Refused,
    RequestError,
    RequestType,
    ServerAnswer,
    ServerEvent,
)
from leaderq.testing.simulation.ensemble.proposals import Proposal
from leaderq.testing.simulation.ensemble.proposer import OPEN_SESSION
from leaderq.testing.simulation.ensemble.sessions import password_of
from leaderq.testing.simulation.ensemble.settings import EnsembleSettings
from leaderq.testing.simulation.ensemble.tree import (
    ADMIN,
    OPEN,
    READ,
    Tree,
    Znode,
    digest_id,
    is_allowed,
    shown_acl,
)
from leaderq.testing.simulation.ensemble.watch_table import WatchTable
from leaderq.zookeeper.wire import HEADER_BYTES, ChildData, Failed, Stat

_WRITES = frozenset(
    (RequestType.CREATE, RequestType.DELETE, RequestType.SET_DATA, RequestType.MULTI,
     RequestType.CLOSE, RequestType.SET_ACL)
)  # fmt: skip
_SIZED = frozenset(
    (RequestType.CREATE, RequestType.SET_DATA, RequestType.MULTI, RequestType.MULTI_READ)
)
_SMALL = 4096
"""The path and the rest of a request besides its data are never larger."""


Deliver = Callable[[object], None]


class PendingRequest:
    """A request that waits for its commit, or for an earlier request that does."""

    __slots__ = ("end", "is_write", "kind", "request", "xid")

    def __init__(self, end: ServerEnd, xid: int, kind: int, request: Any, is_write: bool) -> None:
        self.end = end
        self.xid = xid
        self.kind = kind
        self.request = request
        self.is_write = is_write


class ServerEnd:
    """The server's end of a connection. A client calls :meth:`send` and :meth:`close`, which never
    block and never raise.

    ``deliver`` is called with each message of the server, in order, at the moment at which the
    server sends it: from within ``send``, ``close``, the methods of the ensemble, or a timer. It
    may call these methods again.
    """

    __slots__ = (
        "_deliver", "early", "identities", "is_established", "is_open", "queue", "server",
        "session_id", "timeout_ms",
    )  # fmt: skip

    def __init__(self, server: SimulatedServer, deliver: Deliver, timeout_ms: int) -> None:
        self.server = server
        self._deliver = deliver
        self.timeout_ms = timeout_ms
        self.session_id = 0
        self.identities: tuple[Id, ...] = ()
        self.is_open = True
        self.is_established = False
        self.early: list[tuple[int, Any]] = []
        """Requests that came before the session was there."""
        self.queue: deque[PendingRequest] = deque()

    # -- what the client does ----------------------------------------------------------------------

    def send(self, xid: int, request: Any) -> None:
        """Send a request, which arrives at the server; ignored if the connection is closed."""
        self.server.enter(self.server.receive, self, xid, request)

    def close(self) -> None:
        """Close the client's end. It hears nothing more; its watches end, and its session does
        not.
        """
        self._deliver = _ignore
        self.server.enter(self.server.lose, self)

    # -- what the server does ----------------------------------------------------------------------

    def establish(self) -> None:
        """The session is there."""
        if not self.is_open:
            return
        self.is_established = True
        granted = Connected(self.session_id, password_of(self.session_id), self.timeout_ms / 1000)
        self._deliver(granted)
        early, self.early = self.early, []
        for xid, request in early:
            self.server.receive(self, xid, request)

    def refuse(self) -> None:
        """There is no such session."""
        if self.is_open:
            self._deliver(Refused())
            self.hang_up()

    def answer(self, xid: int, code: int, value: Any) -> None:
        """Answer one request."""
        if self.is_open:
            self._deliver(ServerAnswer(xid, self.server.last_zxid, code, value))

    def tell(self, kind: int, path: str, acl: tuple[ACL, ...]) -> None:
        """Send an event, unless the client may not read the znode."""
        is_hidden = acl is not OPEN and self.server.hides_events
        if is_hidden and not is_allowed(acl, READ, self.identities):
            return
        if self.is_open:
            self._deliver(ServerEvent(kind, path))

    def hang_up(self) -> None:
        """Close the connection from the server's side."""
        if self.is_open:
            self.server.forget(self)
            self._deliver(Hungup())

    def finish(self, pending: PendingRequest, code: int, value: Any) -> None:
        """Answer the request at the head of the queue."""
        if code == Code.SESSION_MOVED:
            self.hang_up()
        elif pending.kind == RequestType.CLOSE:
            self.answer(pending.xid, OK, None)
            self.hang_up()
        else:
            self.answer(pending.xid, code, value)


class ServerRole(Protocol):
    """The part of a server that agrees with the other servers."""

    forwards_syncs: bool
    """Whether a sync goes to the leader, and is answered when it has come back."""

    def touch(self, end: ServerEnd) -> bool:
        """Note that the client was heard; return whether its session is known to be alive."""

    def check_read(self, end: ServerEnd) -> None:
        """Raise ``RequestError`` if this server may not serve the session any more."""

    def submit(self, pending: PendingRequest) -> None:
        """Let the servers agree on a write, a sync or the beginning of a session."""

    def take_up(self, end: ServerEnd) -> None:
        """Let the leader confirm the session of this connection, which is then served from here."""

    def session_opened(self, session_id: int, timeout_ms: int) -> None:
        """Note that the beginning of a session is committed."""

    def session_closed(self, session_id: int) -> None:
        """Note that the end of a session is committed."""


class SimulatedServer:
    """One server. It takes one input at a time; if it is frozen, inputs wait until it thaws."""

    def __init__(
        self, number: int, settings: EnsembleSettings, new_session_id: Callable[[int], int]
    ) -> None:
        self.number = number
        self.settings = settings
        self._new_session_id = new_session_id
        self.role: ServerRole | None = None
        self.tree = Tree()
        self.watches = WatchTable(settings.version)
        # Of whoever may not read a znode.
        self.hides_events = self._hides_existence = settings.version >= (3, 8, 4)
        self.last_zxid = 0
        self.sessions: dict[int, int] = {}
        """The sessions whose beginning is applied, with their time-outs in ms."""
        self.log: list[Proposal] = []
        """Proposals that are logged and not applied."""
        self.epoch = 0
        """Of the newest leader that this server has followed."""
        self.is_up = True
        self.is_frozen = False
        self._is_busy = False
        self._inputs: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._ends: dict[ServerEnd, None] = {}
        self._end_of: dict[int, ServerEnd] = {}

    # -- inputs ------------------------------------------------------------------------------------

    def enter(self, act: Callable[..., object], *args: Any) -> None:
        """Call ``act`` now, or after what the server is doing; if it is frozen, when it thaws."""
        if self._is_busy or self.is_frozen:
            self._inputs.append((act, args))
            return
        self._is_busy = True
        try:
            act(*args)
            while self._inputs and not self.is_frozen:
                act, args = self._inputs.popleft()
                act(*args)
        finally:
            self._is_busy = False

    def freeze(self) -> None:
        """Let the server stand still: it reads nothing, sends nothing, and its timers wait."""
        self.is_frozen = True

    def thaw(self) -> None:
        """Let the server continue with everything that has come meanwhile."""
        if self.is_frozen:
            self.is_frozen = False
            self.enter(_nothing)

    def at(self, delay_s: float, act: Callable[[], None]) -> Any:
        """A timer of this server."""
        return self.settings.at(delay_s, lambda: self.enter(act))

    def drop_inputs(self) -> None:
        """Drop what the server has not read, because it was killed."""
        self._inputs.clear()

    # -- connections -------------------------------------------------------------------------------

    def connect(self, hello: Hello, deliver: Deliver) -> ServerEnd:
        """Open a client's connection, and take its hello."""
        settings = self.settings
        asked_ms = int(hello.timeout_s * 1000)
        timeout_ms = max(settings.min_timeout_ms, min(settings.max_timeout_ms, asked_ms))
        end = ServerEnd(self, deliver, timeout_ms)
        self._ends[end] = None
        self.enter(self._greet, end, hello)
        return end

    def _greet(self, end: ServerEnd, hello: Hello) -> None:
        if not end.is_open:
            return
        role = self.role
        if role is None or hello.last_zxid > self.last_zxid:
            end.hang_up()
        elif hello.session_id == 0:
            end.session_id = self._new_session_id(self.number)
            self._end_of[end.session_id] = end
            pending = PendingRequest(end, 0, OPEN_SESSION, None, is_write=True)
            end.queue.append(pending)
            role.submit(pending)
        else:
            if (former := self._end_of.get(hello.session_id)) is not None:
                former.hang_up()
            end.session_id = hello.session_id
            self._end_of[end.session_id] = end
            if hello.password == password_of(hello.session_id):
                role.take_up(end)
            else:
                end.refuse()

    def lose(self, end: ServerEnd) -> None:
        """Forget a connection that the client has closed."""
        if end.is_open:
            self.forget(end)

    def forget(self, end: ServerEnd) -> None:
        """The connection is over."""
        end.is_open = False
        self._ends.pop(end, None)
        if self._end_of.get(end.session_id) is end:
            del self._end_of[end.session_id]
        self.watches.forget(end)

    def hang_up_on_all(self) -> None:
        """Close all connections, because the server no longer serves."""
        for end in list(self._ends):
            end.hang_up()

    # -- requests ----------------------------------------------------------------------------------

    def receive(self, end: ServerEnd, xid: int, request: Any) -> None:
        """A request has arrived."""
        if not end.is_open:
            return
        if not end.is_established:
            end.early.append((xid, request))
            return
        kind: int = request.type
        if kind in _SIZED and self._is_too_large(kind, request):
            end.hang_up()
            return
        role = self.role
        assert role is not None
        if kind == RequestType.AUTH:
            self._authenticate(end, xid, request)
        elif not role.touch(end):
            return  # the session is over, and its connection will be
        elif kind in _WRITES or (kind == RequestType.SYNC and role.forwards_syncs):
            pending = PendingRequest(end, xid, kind, request, is_write=True)
            end.queue.append(pending)
            role.submit(pending)
        elif end.queue:
            end.queue.append(PendingRequest(end, xid, kind, request, is_write=False))
        else:
            self._read(end, xid, kind, request)

    def _is_too_large(self, kind: int, request: Any) -> bool:
        limit = self.settings.max_request_bytes
        if kind in (RequestType.CREATE, RequestType.SET_DATA):
            is_small = len(request.data or b"") + _SMALL < limit
            if is_small:
                return False
        return len(request.serialize()) + HEADER_BYTES > limit

    def _authenticate(self, end: ServerEnd, xid: int, request: Any) -> None:
        if request.scheme != "digest":
            end.answer(xid, Code.AUTH_FAILED, None)
            end.hang_up()
            return
        who = digest_id(request.auth)
        if who not in end.identities:
            end.identities = (*end.identities, who)
        end.answer(xid, OK, None)

    # -- what was agreed on ------------------------------------------------------------------------

    def apply(self, proposal: Proposal) -> None:
        """A proposal is committed."""
        self.last_zxid = proposal.zxid
        if proposal.changes:
            self.tree.apply(proposal.changes)
            if self.watches:
                for kind, path, acl, acl_above in proposal.triggers:
                    self.watches.fire(kind, path, acl, acl_above)
        if proposal.opens or proposal.closes:
            self._note_session(proposal)
        pending = proposal.origin
        if isinstance(pending, PendingRequest) and pending.end.server is self:
            self.finish(pending, proposal.code, proposal.value)
        if proposal.closes and (end := self._end_of.get(proposal.session_id)) is not None:
            end.hang_up()

    def _note_session(self, proposal: Proposal) -> None:
        role, session_id = self.role, proposal.session_id
        if proposal.opens:
            self.sessions[session_id] = proposal.opens
            if role is not None:
                role.session_opened(session_id, proposal.opens)
        else:
            self.sessions.pop(session_id, None)
            if role is not None:
                role.session_closed(session_id)

    def finish(self, pending: PendingRequest, code: int, value: Any) -> None:
        """Answer a write, a sync or the beginning of a session, on which the servers have
        agreed.
        """
        end = pending.end
        queue = end.queue
        if not end.is_open or not queue or queue[0] is not pending:
            return  # the client has gone meanwhile
        queue.popleft()
        if pending.kind == OPEN_SESSION:
            end.establish()
            return
        end.finish(pending, code, value)
        while queue and not queue[0].is_write and end.is_open:
            later = queue.popleft()
            self._read(end, later.xid, later.kind, later.request)

    # -- reads -------------------------------------------------------------------------------------

    def _read(self, end: ServerEnd, xid: int, kind: int, request: Any) -> None:
        role = self.role
        assert role is not None
        try:
            role.check_read(end)
            value = _READS.get(kind, SimulatedServer._refuse)(self, end, request)
        except RequestError as error:
            if error.code == Code.SESSION_MOVED:
                end.hang_up()
            else:
                end.answer(xid, error.code, None)
            return
        end.answer(xid, OK, value)

    def _refuse(self, end: ServerEnd, request: Any) -> Any:
        raise RequestError(Code.UNIMPLEMENTED)

    def _readable(self, end: ServerEnd, path: str) -> Znode:
        znode = self.tree.nodes.get(path)
        if znode is None:
            raise RequestError(Code.NO_NODE)
        if znode.acl is not OPEN and not is_allowed(znode.acl, READ, end.identities):
            raise RequestError(Code.NO_AUTH)
        return znode

    def _exists(self, end: ServerEnd, request: Any) -> Any:
        path = request.path
        znode = self.tree.nodes.get(path)
        if znode is not None and self._hides_existence:
            self._readable(end, path)
        if request.watcher:
            self.watches.watch_data(path, end)
        if znode is None:
            raise RequestError(Code.NO_NODE)
        return znode.stat

    def _get_data(self, end: ServerEnd, request: Any) -> Any:
        znode = self._readable(end, request.path)
        if request.watcher:
            self.watches.watch_data(request.path, end)
        return znode.data, znode.stat

    def _get_children(self, end: ServerEnd, request: Any) -> list[str]:
        self._readable(end, request.path)
        if request.watcher:
            self.watches.watch_children(request.path, end)
        return self.tree.names_below(request.path)

    def _get_children_2(self, end: ServerEnd, request: Any) -> Any:
        names = self._get_children(end, request)
        return names, self.tree.nodes[request.path].stat

    def _get_acl(self, end: ServerEnd, request: Any) -> Any:
        znode = self.tree.nodes.get(request.path)
        if znode is None:
            raise RequestError(Code.NO_NODE)
        if not is_allowed(znode.acl, READ | ADMIN, end.identities):
            raise RequestError(Code.NO_AUTH)
        return shown_acl(znode.acl, end.identities), znode.stat

    def _sync(self, end: ServerEnd, request: Any) -> Any:
        return request.path

    def _ping(self, end: ServerEnd, request: Any) -> None:
        return None

    def _add_watch(self, end: ServerEnd, request: Any) -> bool:
        if request.mode not in (0, 1):
            raise RequestError(Code.MARSHALLING_ERROR)
        self.watches.watch_for_good(request.path, end, is_recursive=request.mode == 1)
        return True

    def _remove_watches(self, end: ServerEnd, request: Any) -> bool:
        removed = self.watches.remove(request.path, end, request.mode)
        if removed is None:
            raise RequestError(Code.MARSHALLING_ERROR)
        if not removed:
            raise RequestError(Code.NO_WATCHER)
        return True

    def _multi_read(self, end: ServerEnd, request: Any) -> list[Any]:
        wants_children = isinstance(request, ChildData)
        results: list[Any] = []
        for kind, path in bodies.reads(request.serialize()):
            try:
                znode = self._readable(end, path)
            except RequestError as error:
                results.append(Failed(error.code))
                continue
            if kind == RequestType.GET_CHILDREN:
                results.append(self.tree.names_below(path))
            elif wants_children:
                results.append((znode.data or b"", znode.stat[2], znode.stat[4]))
            else:
                results.append((znode.data or b"", Stat._make(znode.stat)))
        return results


_READS: dict[int, Callable[[SimulatedServer, ServerEnd, Any], Any]] = {
    RequestType.EXISTS: SimulatedServer._exists,
    RequestType.GET_DATA: SimulatedServer._get_data,
    RequestType.GET_CHILDREN: SimulatedServer._get_children,
    RequestType.GET_CHILDREN_2: SimulatedServer._get_children_2,
    RequestType.GET_ACL: SimulatedServer._get_acl,
    RequestType.SYNC: SimulatedServer._sync,
    RequestType.PING: SimulatedServer._ping,
    RequestType.ADD_WATCH: SimulatedServer._add_watch,
    RequestType.REMOVE_WATCHES: SimulatedServer._remove_watches,
    RequestType.MULTI_READ: SimulatedServer._multi_read,
}


def _nothing() -> None:
    pass


def _ignore(_: object) -> None:
    pass
