"""The role of the only server: what it proposes is committed at once."""

from __future__ import annotations

from leaderq.testing.simulation.ensemble.messages import RequestType
from leaderq.testing.simulation.ensemble.proposals import NewestState
from leaderq.testing.simulation.ensemble.proposer import Proposer
from leaderq.testing.simulation.ensemble.server import PendingRequest, ServerEnd, SimulatedServer
from leaderq.testing.simulation.ensemble.sessions import SessionTracker


class Alone:
    """A server without peers."""

    forwards_syncs = False

    def __init__(self, server: SimulatedServer) -> None:
        settings = server.settings
        self._server = server
        self.sessions = SessionTracker(
            now=settings.now, at=server.at, tick_ms=settings.tick_ms, expire=self.end_session
        )
        self._proposer = Proposer(
            NewestState(server.tree.nodes, is_shared=True),
            self.sessions,
            last_zxid=server.last_zxid,
            wall_ms=settings.wall_ms,
        )
        for session_id, timeout_ms in server.sessions.items():
            self.sessions.track(session_id, timeout_ms)

    def touch(self, end: ServerEnd) -> bool:
        return self.sessions.touch(end.session_id, end.timeout_ms)

    def check_read(self, end: ServerEnd) -> None:
        pass  # it was touched a moment ago, and nobody else could own it

    def submit(self, pending: PendingRequest) -> None:
        end = pending.end
        proposal = self._proposer.propose(
            pending.kind,
            end.session_id,
            owner=self,
            request=pending.request,
            identities=end.identities,
            origin=pending,
            timeout_ms=end.timeout_ms,
        )
        self._server.apply(proposal)

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

    def close(self) -> None:
        """Its timers look no more."""
        self.sessions.stop()

    def end_session(self, session_id: int) -> None:
        """The session has expired."""
        self.sessions.begin_closing(session_id)
        self._server.apply(self._proposer.propose(RequestType.CLOSE, session_id, owner=self))
