"""The role of a follower: answers reads, sends writes to the leader, applies what is committed.

It notes which of its clients it has heard from. It tells this to the leader only in its answers to
the leader's pings, which come every half tick. A write that it passes on does not tell the leader
anything about the client's session.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from leaderq.testing.simulation.ensemble.connections import PendingRequest, ServerEnd
from leaderq.testing.simulation.ensemble.messages import OK, RequestType
from leaderq.testing.simulation.ensemble.proposals import Proposal
from leaderq.testing.simulation.ensemble.server import SimulatedServer
from leaderq.testing.simulation.ensemble.streams import PeerLink


class Superior(Protocol):
    """The leader, as one follower sees it."""

    def request(self, pending: PendingRequest) -> None:
        """Take a write, or the beginning of a session."""

    def sync(self, pending: PendingRequest) -> None:
        """Answer a sync when everything is applied that is committed by now."""

    def take_up(self, end: ServerEnd) -> None:
        """Take note that a client has come to the follower with its session."""

    def acknowledge(self, zxid: int) -> None:
        """A proposal is logged."""

    def touches(self, touched: dict[int, int]) -> None:
        """Take the answer to a ping: the sessions that were heard of, with their time-outs."""

    def gone(self) -> None:
        """The follower has closed its end."""


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
        self.leader: Superior
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
