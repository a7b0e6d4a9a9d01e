"""Candidates of one election, each with a session of its own, on a real server."""

from __future__ import annotations

from typing import Any

from leaderq import Candidate, Deposed, Session, Term, connect
from leaderq.election.decision import Role
from leaderq.events import Event, EventBus, Standing
from leaderq.term import OpenTerm, Reason
from leaderq.testing import eventually
from leaderq.testing.waiting import patience


def conclude_and_close(candidate: Candidate) -> None:
    """As a runner does at its end; ``close`` alone would wait for the term to be concluded."""
    tenure = candidate._campaign.tenure
    if tenure is not None:
        candidate.conclude(tenure.term, Reason.WITHDRAWN, timeout_s=1.0)
    candidate.close(timeout_s=1.0)


def is_believed(term: Term) -> bool:
    """Whether ``term`` passes its check now."""
    try:
        term.check()
    except Deposed:
        return False
    return True


def term_of(candidate: Candidate) -> OpenTerm:
    """The term that a candidate wins, which it must within 30 s, on a patient machine."""
    term = candidate.await_term(30.0 * patience())
    assert term is not None, f"{candidate.id} has not won a term"
    return term


class Electorate:
    """Makes candidates of the career ``c`` below a root of the test's own.

    ``events`` are those of all candidates; ``buses`` holds the event bus of each by its id.
    """

    def __init__(self, address: str, root: str) -> None:
        self.address = address
        self.root = root
        self.events: list[Event] = []
        self.buses: dict[str, EventBus] = {}
        self._sessions: list[Session] = []
        self._candidates: list[Candidate] = []

    def session(self, *, timeout_s: float = 30.0, address: str = "", **more: Any) -> Session:
        """By default of a time-out that is longer than anything here may be without a processor."""
        session = connect(address or self.address, timeout_s=timeout_s, **more)
        self._sessions.append(session)
        return session

    def candidate(self, id: str, session: Session | None = None, **options: Any) -> Candidate:
        """A candidate that does not stand yet; ``options`` are those of :meth:`session`."""
        bus = self.buses.setdefault(id, EventBus())
        bus.subscribe(Event, self.events.append)
        session = session or self.session(**options)
        candidate = Candidate(session, "c", id=id, root=self.root, events=bus)
        self._candidates.append(candidate)
        return candidate

    def told(self, kind: type[Event], id: str) -> list[Any]:
        """The events of class ``kind`` that candidate ``id`` has published."""
        return [one for one in self.events if isinstance(one, kind) and one.candidate == id]

    def lead(self, candidate: Candidate) -> OpenTerm:
        """Let ``candidate`` stand, and return the term that it wins."""
        candidate.stand()
        return term_of(candidate)

    def wait_in_line(self, candidate: Candidate) -> None:
        """Let ``candidate`` stand, and return when it waits for another one, which it watches."""
        before = len(self.told(Standing, candidate.id))
        candidate.stand()
        eventually(lambda: len(self.told(Standing, candidate.id)) > before)
        assert candidate.role is Role.WAITING, f"{candidate.id} is {candidate.role.name}"

    def path(self, *names: str) -> str:
        """A path below the career's folder."""
        return "/".join([self.root, "c", *names])

    def close(self) -> None:
        """Conclude, close and end everything that was made here."""
        for candidate in self._candidates:
            conclude_and_close(candidate)
        for session in self._sessions:
            session.close(1.0)
