"""Candidates of one election, each with a session of its own, on the real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from leaderq import Candidate, Session, connect
from leaderq.events import Event, EventBus
from leaderq.term import Reason


def conclude_and_close(candidate: Candidate) -> None:
    """As a runner does at its end; a candidate that is only closed waits for the term it has given out to be concluded."""
    tenure = candidate._campaign.tenure
    if tenure is not None:
        candidate.conclude(tenure.term, Reason.WITHDRAWN, timeout_s=1.0)
    candidate.close(timeout_s=1.0)


class Electorate:
    """Makes candidates of the career ``c`` below a root of the test's own; everything is closed after the test."""

    def __init__(self, address: str, root: str) -> None:
        self.address = address
        self.root = root
        self.events: list[Event] = []
        self._sessions: list[Session] = []
        self._candidates: list[Candidate] = []

    def session(self, *, timeout_s: float = 30.0, address: str | None = None) -> Session:
        """By default of a time-out that is longer than anything here may be without a processor."""
        session = connect(address or self.address, timeout_s=timeout_s)
        self._sessions.append(session)
        return session

    def candidate(self, id: str, session: Session | None = None, **options: object) -> Candidate:
        bus = EventBus()
        bus.subscribe(Event, self.events.append)
        candidate = Candidate(session or self.session(**options), "c", id=id, root=self.root, events=bus)
        self._candidates.append(candidate)
        return candidate

    def path(self, *names: str) -> str:
        return "/".join([self.root, "c", *names])

    def close(self) -> None:
        for candidate in self._candidates:
            conclude_and_close(candidate)
        for session in self._sessions:
            session.close(1.0)


@pytest.fixture
def electorate(zookeeper_server, znode_root: str) -> Iterator[Electorate]:
    made = Electorate(zookeeper_server.address, znode_root)
    yield made
    made.close()


@pytest.fixture
def won() -> Callable:
    """The term that a candidate wins, which it must within 30 s."""

    def term_of(candidate: Candidate):
        term = candidate.await_term(30.0)
        assert term is not None, f"{candidate.id} has not won a term"
        return term

    return term_of
