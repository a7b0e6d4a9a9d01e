"""Marks of attempts on the real ZooKeeper, written by leaders whose processes end without a word,
as the next leader reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leaderq import Candidate, Deposed, Session, connect
from leaderq.election.layout import Layout
from leaderq.events import EventBus
from leaderq.kafka.handling.crash_marks import CrashMarks
from leaderq.kafka.record import Partition, Record
from leaderq.term import Reason, Term
from leaderq.testing import eventually
from leaderq.zookeeper import end_session

P = Partition("orders", 0)


def record(offset: int) -> Record:
    return Record("orders", 0, offset, 0, None, b"v", ())


class Leader:
    """One process's candidate: it leads, then dies or leaves in order."""

    def __init__(self, address: str, root: str, id: str) -> None:
        self.address = address
        self.path = Layout(root, "c").attempts
        self.session: Session = connect(address, timeout_s=30.0)
        self.candidate = Candidate(self.session, "c", id=id, root=root, events=EventBus())
        self.candidate.stand()
        won = self.candidate.await_term(30.0)
        assert won is not None
        self.term: Term = won
        self.marks = CrashMarks(self.session, self.path, max_records=3)

    def die(self) -> None:
        """What the guardian does for a process that was killed."""
        assert end_session(self.address, self.session.credentials, timeout_s=30.0)

    def leave(self) -> None:
        assert self.candidate.conclude(self.term, Reason.WITHDRAWN, timeout_s=30.0)

    def close(self) -> None:
        self.candidate.conclude(self.term, Reason.WITHDRAWN, timeout_s=1.0)
        self.candidate.close(timeout_s=1.0)
        self.session.close(1.0)


@pytest.fixture
def lead(zookeeper_server: Any, znode_root: str) -> Iterator[Callable[..., Leader]]:
    made: list[Leader] = []

    def begin(committed: dict[Partition, int] | None = None) -> Leader:
        leader = Leader(zookeeper_server.address, znode_root, f"candidate-{len(made)}")
        made.append(leader)
        leader.marks.begin(leader.term, {P: 40} if committed is None else committed)
        return leader

    yield begin
    for leader in made:
        leader.close()


def test_while_all_goes_well_nothing_is_written(lead):
    leader = lead()
    assert not leader.marks.is_careful(P)
    assert leader.session.exists(leader.path) is None


def test_a_record_that_kills_again_and_again_is_known_by_its_deaths(lead):
    lead().die()
    lead().die()
    leader = lead()
    for died in range(3):
        assert leader.marks.is_careful(P)
        assert leader.marks.before(leader.term, record(40)) == 0
        leader.marks.after(leader.term, record(40))
        assert leader.marks.before(leader.term, record(41)) == died
        leader.die()
        leader = lead({P: 41})
    assert leader.marks.before(leader.term, record(41)) == 3


def test_a_zombie_cannot_blame_a_record(lead):
    zombie = lead()
    zombie.die()
    leader = lead()
    before = leader.session.get(leader.path)[0]

    def is_deposed() -> bool:
        try:
            zombie.marks.before(zombie.term, record(40))
        except Deposed:
            return True
        return False  # a connection that breaks meanwhile is no answer either

    eventually(is_deposed)
    assert leader.session.get(leader.path)[0] == before
