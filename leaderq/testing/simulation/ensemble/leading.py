"""The roles of a leader and of its followers.

The leader decides the order of writes, and which sessions are alive. A proposal is committed when
more than half of the servers have logged it and all before it.

A follower answers reads, sends writes to the leader, and applies what is committed. It notes which
of its clients it has heard from. It tells this to the leader only in its answers to the leader's
pings, which come every half tick. A write that it passes on does not tell the leader anything about
the client's session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from leaderq.testing.simulation.ensemble.messages import OK, RequestType
from leaderq.testing.simulation.ensemble.proposals import NewestState, Proposal
from leaderq.testing.simulation.ensemble.proposer import Proposer
from leaderq.testing.simulation.ensemble.server import PendingRequest, ServerEnd, SimulatedServer
from leaderq.testing.simulation.ensemble.sessions import SessionTracker
from leaderq.testing.simulation.ensemble.streams import PeerLink, stream


class _Outstanding:
    """A proposal, the servers that have logged it, and the syncs that wait for its commit."""

    __slots__ = ("logged_by", "proposal", "syncs")

    def __init__(self, proposal: Proposal) -> None:
        self.proposal = proposal
        self.logged_by: set[int] = set()
        self.syncs: list[tuple[FollowerHandle, PendingRequest]] = []


class Leader:
    """A server that leads. ``leave(server)`` is called when too few servers follow it."""

    forwards_syncs = False

    def __init__(
        self,
        server: SimulatedServer,
        *,
        epoch: int,
        quorum: int,
        leave: Callable[[SimulatedServer], None],
    ) -> None:
        settings = server.settings
        self.server = server
        self._quorum = quorum
        self._leave = leave
        self._outstanding: deque[_Outstanding] = deque()
        self.followers: dict[int, FollowerHandle] = {}
        self._half_ticks = 0
        self._disk = stream(settings, server.enter)
        self.sessions = SessionTracker(
            now=settings.now, at=server.at, tick_ms=settings.tick_ms, expire=self.end_session
        )
        for session_id, timeout_ms in server.sessions.items():
            self.sessions.track(session_id, timeout_ms)
        self._proposer = Proposer(
            NewestState(server.tree.nodes.copy(), is_shared=False),
            self.sessions,
            last_zxid=epoch << 32,
            wall_ms=settings.wall_ms,
        )
        self._half_tick_s = settings.tick_ms / 2000
        server.at(self._half_tick_s, self._beat)

    @property
    def is_over(self) -> bool:
        """Whether this server no longer leads."""
        return self.server.role is not self

    @property
    def has_quorum(self) -> bool:
        """Whether enough servers follow for a quorum, as far as this server knows."""
        return 1 + len(self.followers) >= self._quorum

    # -- its own clients ---------------------------------------------------------------------------

    def touch(self, end: ServerEnd) -> bool:
        return self.sessions.touch(end.session_id, end.timeout_ms)

    def check_read(self, end: ServerEnd) -> None:
        self.sessions.check(end.session_id, self)

    def submit(self, pending: PendingRequest) -> None:
        self.propose(pending, self)

    def take_up(self, end: ServerEnd) -> None:
        if self.sessions.touch(end.session_id, end.timeout_ms):
            self.sessions.own(end.session_id, self)
            end.establish()
        else:
            end.refuse()

    def session_opened(self, session_id: int, timeout_ms: int) -> None:
        pass

    def session_closed(self, session_id: int) -> None:
        self.sessions.remove(session_id)

    def end_session(self, session_id: int) -> None:
        """The session has expired."""
        if not self.is_over:
            self.sessions.begin_closing(session_id)
            self._send_out(self._proposer.propose(RequestType.CLOSE, session_id, owner=self))

    # -- the log -----------------------------------------------------------------------------------

    def propose(self, pending: PendingRequest, owner: object) -> None:
        """Number a client's write, and let all servers log it."""
        end = pending.end
        proposal = self._proposer.propose(
            pending.kind,
            end.session_id,
            owner=owner,
            request=pending.request,
            identities=end.identities,
            origin=pending,
            timeout_ms=end.timeout_ms,
        )
        self._send_out(proposal)

    def _send_out(self, proposal: Proposal) -> None:
        self._outstanding.append(_Outstanding(proposal))
        for handle in self.followers.values():
            handle.link.down.send("proposal", handle.follower.propose, proposal)
        self._disk.send("log", self._logged, proposal)

    def _logged(self, proposal: Proposal) -> None:
        if not self.is_over:
            self.server.log.append(proposal)
            self.acknowledge(self.server.number, proposal.zxid)

    def acknowledge(self, number: int, zxid: int) -> None:
        """Note that server ``number`` has logged a proposal; commit what a quorum has logged."""
        outstanding = self._outstanding
        for one in outstanding:
            if one.proposal.zxid == zxid:
                one.logged_by.add(number)
                break
        # A follower may be first: this server's own log must have it too before it is applied.
        mine = self.server.number
        while outstanding and len(outstanding[0].logged_by) >= self._quorum:
            if mine not in outstanding[0].logged_by:
                return
            self._commit(outstanding.popleft())

    def _commit(self, one: _Outstanding) -> None:
        for handle in self.followers.values():
            handle.link.down.send("commit", handle.follower.commit)
        for handle, pending in one.syncs:
            handle.link.down.send("commit", handle.follower.synced, pending)
        self.server.apply(self.server.log.pop(0))

    def sync(self, handle: FollowerHandle, pending: PendingRequest) -> None:
        """Answer a sync when everything that is proposed by now is committed."""
        if self._outstanding:
            self._outstanding[-1].syncs.append((handle, pending))
        else:
            handle.link.down.send("commit", handle.follower.synced, pending)

    # -- followers ---------------------------------------------------------------------------------

    def welcome(self, follower: Follower, server: SimulatedServer, link: PeerLink) -> None:
        """Let a server follow from now on; it has this server's state."""
        handle = FollowerHandle(self, server.number, follower, link)
        follower.leader = handle
        self.followers[server.number] = handle
        for one in self._outstanding:
            link.down.send("proposal", follower.propose, one.proposal)

    def dismiss(self, handle: FollowerHandle) -> None:
        """Drop a follower that is gone, or was not heard of for too long."""
        if self.followers.get(handle.number) is handle:
            del self.followers[handle.number]
            handle.link.down.end(handle.follower.gone)

    def close(self) -> None:
        """Close all connections to followers, and stop the timers of sessions."""
        self.sessions.stop()
        for handle in list(self.followers.values()):
            self.dismiss(handle)

    def _beat(self) -> None:
        if self.is_over:
            return
        now_s = self.server.settings.now()
        limit_s = self.server.settings.sync_limit * self._half_tick_s * 2
        for handle in list(self.followers.values()):
            if now_s - handle.heard_s > limit_s:
                self.dismiss(handle)
        self._half_ticks += 1
        if self._half_ticks % 2 == 0 and not self.has_quorum:
            self._leave(self.server)
            return
        for handle in self.followers.values():
            handle.link.down.send("ping", handle.follower.ping)
        self.server.at(self._half_tick_s, self._beat)


class FollowerHandle:
    """The leader's view of one follower; it owns the sessions that the follower serves."""

    def __init__(self, leader: Leader, number: int, follower: Follower, link: PeerLink) -> None:
        self._leader = leader
        self.number = number
        self.follower = follower
        self.link = link
        self.heard_s = leader.server.settings.now()

    def _hear(self) -> bool:
        self.heard_s = self._leader.server.settings.now()
        return not self._leader.is_over and self._leader.followers.get(self.number) is self

    def request(self, pending: PendingRequest) -> None:
        """Take a write, or the beginning of a session."""
        if self._hear():
            self._leader.propose(pending, self)

    def sync(self, pending: PendingRequest) -> None:
        """Answer a sync when everything is applied that is committed by now."""
        if self._hear():
            self._leader.sync(self, pending)

    def take_up(self, end: ServerEnd) -> None:
        """Take note that a client has come to the follower with its session."""
        if self._hear():
            is_alive = self._leader.sessions.touch(end.session_id, end.timeout_ms)
            if is_alive:
                self._leader.sessions.own(end.session_id, self)
            self.link.down.send("commit", self.follower.taken_up, end, is_alive)

    def acknowledge(self, zxid: int) -> None:
        if self._hear():
            self._leader.acknowledge(self.number, zxid)

    def touches(self, touched: dict[int, int]) -> None:
        """Take the answer to a ping: the sessions that were heard of, with their time-outs."""
        if self._hear():
            for session_id, timeout_ms in touched.items():
                self._leader.sessions.touch(session_id, timeout_ms)

    def gone(self) -> None:
        if not self._leader.is_over:
            self._leader.dismiss(self)


class Follower:
    """A server that follows a leader. ``leave(server)`` is called when it has no leader any
    more.
    """

    forwards_syncs = True

    def __init__(
        self, server: SimulatedServer, link: PeerLink, leave: Callable[[SimulatedServer], None]
    ) -> None:
        self._server = server
        self._link = link
        self._leave = leave
        self._touched: dict[int, int] = {}
        self.leader: FollowerHandle
        settings = server.settings
        self._silence_s = settings.sync_limit * settings.tick_ms / 1000
        self._heard_s = settings.now()
        server.at(self._silence_s, self._look)

    @property
    def _is_over(self) -> bool:
        return self._server.role is not self

    # -- clients -----------------------------------------------------------------------------------

    def touch(self, end: ServerEnd) -> bool:
        self._touched[end.session_id] = end.timeout_ms
        return True

    def check_read(self, end: ServerEnd) -> None:
        pass

    def submit(self, pending: PendingRequest) -> None:
        if pending.kind == RequestType.SYNC:
            self._link.up.send("request", self.leader.sync, pending)
        else:
            self._link.up.send("request", self.leader.request, pending)

    def take_up(self, end: ServerEnd) -> None:
        self._link.up.send("request", self.leader.take_up, end)

    def session_opened(self, session_id: int, timeout_ms: int) -> None:
        self._touched[session_id] = timeout_ms

    def session_closed(self, session_id: int) -> None:
        self._touched.pop(session_id, None)

    # -- the leader --------------------------------------------------------------------------------

    def propose(self, proposal: Proposal) -> None:
        """Log a proposal."""
        if not self._is_over:
            self._hear()
            self._server.log.append(proposal)
            self._link.up.send("ack", self.leader.acknowledge, proposal.zxid)

    def commit(self) -> None:
        """Apply the oldest proposal in the log."""
        if not self._is_over:
            self._hear()
            self._server.apply(self._server.log.pop(0))

    def synced(self, pending: PendingRequest) -> None:
        """Answer a sync: everything is applied that was committed when the leader got it."""
        if not self._is_over:
            self._hear()
            self._server.finish(pending, OK, pending.request.path)

    def taken_up(self, end: ServerEnd, is_alive: bool) -> None:
        """Take the leader's answer to :meth:`take_up`: whether the session is alive."""
        if not self._is_over:
            self._hear()
            if is_alive:
                end.establish()
            else:
                end.refuse()

    def ping(self) -> None:
        """Hand over the touches."""
        if not self._is_over:
            self._hear()
            touched, self._touched = self._touched, {}
            self._link.up.send("ping", self.leader.touches, touched)

    def gone(self) -> None:
        """The leader has closed its end."""
        if not self._is_over:
            self._leave(self._server)

    def close(self) -> None:
        """Close this end."""
        self._link.up.end(self.leader.gone)

    def _hear(self) -> None:
        self._heard_s = self._server.settings.now()

    def _look(self) -> None:
        if self._is_over:
            return
        left_s = self._silence_s - (self._server.settings.now() - self._heard_s)
        if left_s <= 1e-9:
            self._leave(self._server)
        else:
            self._server.at(left_s, self._look)
