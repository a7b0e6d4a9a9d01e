"""Candidates of one election, each with a session of its own, on a real server."""

from __future__ import annotations

from typing import Any

from leaderq import Candidate, Session, connect
from leaderq.election.decision import Role
from leaderq.term import OpenTerm, Reason
from leaderq.testing import eventually
from leaderq.testing.waiting import patience


def term_of(candidate: Candidate) -> OpenTerm:
    """The term that a candidate wins, which it must within 30 s, on a patient machine."""
    term = candidate.await_term(30.0 * patience())
    assert term is not None, f"{candidate.id} has not won a term"
    return term


class Electorate:
    """Makes candidates of the career ``c`` below a root of the test's own."""

    def __init__(self, address: str, root: str) -> None:
        self.address = address
        self.root = root
        self._sessions: list[Session] = []
        self._candidates: list[Candidate] = []

    def session(self, *, timeout_s: float = 30.0, address: str = "") -> Session:
        """By default of a time-out that is longer than anything here may be without a processor."""
        self._sessions.append(connect(address or self.address, timeout_s=timeout_s))
        return self._sessions[-1]

    def candidate(self, id: str, **options: Any) -> Candidate:
        """A candidate that does not stand yet; ``options`` are those of :meth:`session`."""
        self._candidates.append(Candidate(self.session(**options), "c", id=id, root=self.root))
        return self._candidates[-1]

    def lead(self, candidate: Candidate) -> OpenTerm:
        """Let ``candidate`` stand, and return the term that it wins."""
        candidate.stand()
        return term_of(candidate)

    def wait_in_line(self, candidate: Candidate) -> None:
        """Let ``candidate`` stand, and return when it waits for another one."""
        candidate.stand()
        eventually(lambda: candidate.role is Role.WAITING)

    def path(self, *names: str) -> str:
        """A path below the career's folder."""
        return "/".join([self.root, "c", *names])

    def close(self) -> None:
        """Conclude and close everything as a runner does at its end; ``close`` alone would wait for
        terms to be concluded.
        """
        for candidate in self._candidates:
            tenure = candidate._campaign.tenure
            if tenure is not None:
                candidate.conclude(tenure.term, Reason.WITHDRAWN, timeout_s=1.0)
            candidate.close(timeout_s=1.0)
        for session in self._sessions:
            session.close(1.0)
