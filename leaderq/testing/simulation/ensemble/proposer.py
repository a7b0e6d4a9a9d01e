"""The deciding part of a leader: takes writes in order, and numbers the proposals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo.security import Id

from leaderq.testing.simulation.ensemble.messages import Code, RequestError, RequestType
from leaderq.testing.simulation.ensemble.proposals import (
    NEVER_LOOKED_AT,
    Draft,
    NewestState,
    Proposal,
)
from leaderq.testing.simulation.ensemble.sessions import SessionTracker
from leaderq.zookeeper.wire import Failed

OPEN_SESSION: Final = -10
"""The kind of the proposal that begins a session; no client sends it."""


class Proposer:
    """Makes proposals for the servers of an ensemble, or for the only server."""

    def __init__(
        self,
        newest: NewestState,
        sessions: SessionTracker,
        *,
        last_zxid: int,
        wall_ms: Callable[[], int],
    ) -> None:
        self.newest = newest
        self.sessions = sessions
        self.last_zxid = last_zxid
        self._wall_ms = wall_ms

    def propose(
        self,
        kind: int,
        session_id: int,
        *,
        owner: object,
        request: Any = None,
        identities: Sequence[Id] = (),
        origin: object = None,
        timeout_ms: int = 0,
    ) -> Proposal:
        """Return the next proposal: a client's write, or the beginning or end of a session."""
        zxid = self.last_zxid = self.last_zxid + 1
        proposal = Proposal(zxid, session_id, origin)
        if kind == OPEN_SESSION:
            self.sessions.track(session_id, timeout_ms)
            self.sessions.own(session_id, owner)
            proposal.opens = timeout_ms
            return proposal
        newest = self.newest
        draft = Draft(newest.nodes, zxid, self._wall_ms(), session_id, identities)
        if kind == RequestType.CLOSE:
            owned = newest.ephemerals.get(session_id)
            if owned:
                draft.delete_all(owned.listed_of_clone())
            self.sessions.begin_closing(session_id)
            proposal.closes = True
        else:
            try:
                self.sessions.check(session_id, owner)
                proposal.value = draft.do(request, kind)
            except RequestError as error:
                if kind == RequestType.MULTI and error.code == Code.SESSION_EXPIRED:
                    rest = [NEVER_LOOKED_AT] * (request.count - 1)
                    proposal.value = [Failed(error.code), *rest]
                else:
                    proposal.code = error.code
                return proposal
        proposal.changes = changes = draft.listed()
        proposal.triggers = draft.triggers
        newest.accept(changes)
        if proposal.closes:
            newest.ephemerals.pop(session_id, None)
        return proposal
