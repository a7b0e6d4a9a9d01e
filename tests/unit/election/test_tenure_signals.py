from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from terms import is_on

from leaderq.base import clock
from leaderq.election.decision import Input
from leaderq.election.enlistment import WonClaim
from leaderq.election.layout import Layout, TermRecord, Wishes, WishesDecoder
from leaderq.election.tenure import Tenure
from leaderq.errors import ConnectionLost, Deposed, NoNode, NotConnected, Reason, SessionExpired
from leaderq.events import Stage
from leaderq.zookeeper import Check, Create
from leaderq.zookeeper.proof import Proof, Shares
from leaderq.zookeeper.seat import Seat
from leaderq.zookeeper.watching import WatchEvent, WatchKind

T = 24.0
NODE = "/r/c/candidates/z"


class Session:
    """T is 24 s; ``answers``: what a multi raises, or returns; ``on_proof`` holds its pulse."""

    def __init__(self) -> None:
        self.id: int | None = 1
        self.timeout_s = T
        self.watches: list[Any] = []
        self.watched: list[Future[Any]] = []
        self.announced: list[Future[Any]] = []
        self.pulse = self
        self.shares = Shares(T)
        self.on_proof: Any = None
        self.answers: list[Any] = []
        self.sent: list[Any] = []
        self.told: list[Input] = []

    def hold(self, on_proof: Any) -> Any:
        self.on_proof = on_proof
        return lambda: setattr(self, "on_proof", None)

    def prove(self) -> None:
        """Another proof comes if a test gives one."""

    def children_async(self, path: str, watch: Any) -> Future[Any]:
        assert path == NODE
        self.watches.append(watch)
        self.watched.append(Future())
        return self.watched[-1]

    def multi_async(self, ops: Any) -> Future[Any]:
        self.announced.append(Future())
        return self.announced[-1]

    def get_async(self, path: str, watch: Any) -> Future[Any]:
        return Future()

    def multi(self, ops: Any, timeout_s: float) -> list[Any]:
        self.sent.append((list(ops), timeout_s))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def proof(known_s: float, timeout_s: float = T, session: int | None = 1) -> Proof:
    return Proof(session, Shares(timeout_s), known_s)


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def tenure(session: Session, at: list[float]) -> Any:
    record = TermRecord(number=7, candidate="a", id="z")
    made = Tenure(
        session,
        WonClaim(record, Seat(session, NODE, 1), proof(100.0), False, Wishes()),
        Layout("/r", "c"),
        WishesDecoder("/r/c/control"),
        tell=session.told.append,
        **dict.fromkeys(("hear_wishes", "hear_line", "tell_end"), lambda *_: None),
    )
    made.open()
    session.watched[-1].set_result([])
    return made


def test_a_term_is_trusted_as_long_as_its_session_is_proven(tenure, session, at):
    assert tenure.term.deadline == 119.0
    at[0] = 101.5
    session.on_proof(proof(101.0))
    assert (tenure.term.deadline, session.told) == (120.0, [])
    tenure.doubt()
    session.on_proof(proof(101.1))
    session.on_proof(proof(101.2))
    assert session.told == [Input.HEARD]  # once


@pytest.mark.parametrize(
    ("error", "signal"), [(NoNode("gone", index=0), Input.GONE), (ConnectionLost("x"), None)]
)
def test_an_announcement_that_is_fenced_tells_that_the_znode_is_gone(
    tenure, session, error, signal
):
    tenure.announce(Stage.EXECUTION)
    session.announced[-1].set_exception(error)
    assert (tenure.term.deadline, session.told) == (119.0, [] if signal is None else [signal])


@pytest.mark.parametrize("is_watched", [True, False])
def test_the_own_znode_is_watched_again_after_the_watch_was_lost(tenure, session, is_watched):
    tenure.connected()
    assert len(session.watches) == 1
    session.watches[-1](WatchEvent(WatchKind.SESSION, NODE))
    tenure.connected()
    assert (len(session.watches), session.told) == (2, [])
    session.watched[-1].set_exception(ConnectionLost("x"))
    session.on_proof(proof(101.0))
    assert len(session.watches) == 3
    if is_watched:
        session.watches[-1](WatchEvent(WatchKind.DELETED, NODE))
    else:
        session.watched[-1].set_exception(NoNode("gone"))
    assert session.told == [Input.GONE]


def test_after_the_end_of_a_tenure_nothing_is_told(tenure, session):
    tenure.announce(Stage.EXECUTION)
    tenure.close()
    session.watches[-1](WatchEvent(WatchKind.DELETED, NODE))
    session.announced[-1].set_exception(NoNode("x", index=0))
    assert (session.told, session.on_proof) == ([], None)


def test_the_clock_alone_tells_that_a_lease_is_late_or_over(tenure, at):
    late_s = 100.0 + Shares(T).late_s
    assert tenure.signal_due(late_s - 0.01) is None
    assert (tenure.signal_due(late_s), tenure.wake_s(100.0)) == (Input.LATE, late_s)
    assert tenure.wake_s(late_s) == 119.0
    at[0] = 119.0
    assert tenure.signal_due(100.0) is Input.LEASE_OVER


def test_a_shorter_time_out_counts_at_once(tenure, session):
    session.on_proof(proof(100.0, 12.0))
    assert tenure.term.deadline == 109.5
    session.on_proof(proof(100.0, 12.0))
    session.on_proof(proof(101.0, 12.0))
    assert tenure.term.deadline == 110.5


def test_a_write_is_fenced_by_the_own_znode(tenure, session):
    session.answers = [[None, "made"]]
    assert tenure.term.write([Create("/x")]) == ["made"]
    assert session.sent[-1] == ([Check(NODE), Create("/x")], pytest.approx(19.0 + T / 3))


@pytest.mark.parametrize(
    ("answer", "reason", "signal"),
    [
        (NoNode("gone", index=0), Reason.FENCED, Input.FENCED),
        (SessionExpired("x"), Reason.SESSION, Input.LOST),
    ],
)
def test_a_term_that_was_deposed_by_a_write_is_over_for_good(
    tenure, session, answer, reason, signal
):
    session.answers = [answer, [None]]
    with pytest.raises(Deposed) as deposed:
        tenure.term.write([])
    assert (deposed.value.term, deposed.value.reason) == (7, reason)
    assert (session.told, is_on(tenure.term)) == ([signal], False)
    with pytest.raises(Deposed):
        tenure.term.write([])
    assert len(session.answers) == 1


def test_a_write_waits_for_the_connection_as_long_as_the_lease_lasts(
    tenure, session, at, monkeypatch
):
    monkeypatch.setattr(clock, "sleep", lambda seconds: at.__setitem__(0, at[0] + 0.02))
    session.answers = [NotConnected("x"), NotConnected("x"), [None, 5]]
    assert tenure.term.write([Create("/x")]) == [5]
    session.answers = [NotConnected("x")] * 1000
    with pytest.raises(Deposed) as deposed:
        tenure.term.write([])
    assert deposed.value.reason is Reason.LEASE
    assert at[0] == pytest.approx(119.0, abs=0.1)


@pytest.mark.parametrize("other", [None, 2])
def test_a_term_ends_at_once_when_its_session_is_not_ours_any_more(tenure, session, other):
    session.on_proof(proof(110.0, session=other))
    assert (tenure.term.reason, is_on(tenure.term), session.told) == (Reason.SESSION, False, [])
