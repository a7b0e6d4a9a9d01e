"""What proves that a session lives, and until when: the shares of T, the choice of i, the pulse."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from leaderq.errors import ConnectionLost, NoNode, NoPermission, SessionExpired
from leaderq.testing import eventually
from leaderq.zookeeper import Check
from leaderq.zookeeper.proof import NEVER, Echoes, Proof, Shares
from leaderq.zookeeper.pulse import Pulse

T = 24.0


@pytest.mark.parametrize(
    ("tick_s", "known_s", "late_s"),
    [
        (None, 6.25, 6.25 + T * 2 / 7 + 4),
        (2.0, 25 / 24, 25 / 24 + T * 2 / 7 + 4),
        (24.0, 12.5, 18.0),
    ],
)
def test_shares_of_the_time_out(tick_s, known_s, late_s):
    shares = Shares(T, tick_s)
    assert shares.known_s == pytest.approx(known_s)
    assert shares.late_s == pytest.approx(late_s)
    given = (shares.trusted_s, shares.gone_s, shares.grace_s, shares.handover_s, shares.beat_s)
    assert given == pytest.approx((19.0, 22.0, 1.0, 4.0, T / 7))
    assert (shares.answer_s, shares.silent_s, shares.strict_s) == (8.0, 16.0, 12.0)


def test_a_proof_counts_from_when_its_first_request_was_sent():
    proof = Proof(1, Shares(T), 100.0)
    assert (proof.trusted_until_s, proof.gone_s) == (119.0, 122.0)
    assert proof.late_s == 100.0 + Shares(T).late_s
    assert proof.granted(Shares(T)) is proof
    assert proof.granted(Shares(48.0)) is proof
    assert proof.granted(Shares(12.0)) == Proof(1, Shares(12.0), 100.0)


def test_what_is_sent_while_an_answer_is_awaited_is_no_sample_of_its_own():
    echoes = Echoes(NEVER, T)
    echoes.sent(100.0, count=3)
    echoes.sent(101.0)
    echoes.read(102.0, outstanding=2)  # two of four are answered, not the third
    assert echoes.newest_s(200.0) == NEVER
    echoes.read(103.0, outstanding=1)
    assert echoes.newest_s(200.0) == 100.0
    echoes.sent(104.0)
    echoes.read(105.0, outstanding=0)
    assert echoes.newest_s(200.0) == 104.0


def test_of_samples_within_a_24th_the_first_and_the_last_are_kept_for_one_time_out():
    def heard(began_s: float, *sent: float) -> Echoes:
        echoes = Echoes(began_s, T)
        echoes.read(began_s, outstanding=0)  # an event that nobody asked for
        for sent_s in sent:
            echoes.sent(sent_s)
            echoes.read(sent_s + 0.3, outstanding=0)
        return echoes

    assert [sent for sent, _ in heard(9.5, 9.7, 10.0)._heard] == [9.5, 10.0]
    echoes = heard(8.0, 10.0, 10.5, 10.99, 11.0)
    assert [sent for sent, _ in echoes._heard] == [8.0, 10.0, 10.99, 11.0]
    echoes.sent(20.0)
    echoes.read(10.0 + T, outstanding=0)
    assert [sent for sent, _ in echoes._heard] == [10.99, 11.0, 20.0]


def test_of_samples_only_those_older_than_the_time_out_are_dropped():
    echoes = Echoes(0.0, 6.0)
    for sent_s in (3.0, 6.2):
        echoes.sent(sent_s)
        echoes.read(sent_s + 0.1, 0)
    assert echoes.newest_s(3.5) == 3.0
    assert echoes.newest_s(3.0) == NEVER  # the connection itself is too old by now


class Requests:
    def __init__(self) -> None:
        self.id: int | None = 7
        self.timeout_s = T
        self.echoes = Echoes(100.0, T)
        self.sent: list[Any] = []
        self.pulse = Pulse("test", self, let_go=lambda: None)

    @property
    def shares(self) -> Shares:
        return Shares(self.timeout_s)

    def sync_async(self, path: str) -> Future[Any]:
        return self._asked(("sync", path))

    def multi_async(self, operations: Any) -> Future[Any]:
        return self._asked(("multi", *operations))

    def _asked(self, what: Any) -> Future[Any]:
        made: Future[Any] = Future()
        self.sent.append((what, made))
        return made

    def answer(self, error: Exception | None = None) -> Any:
        what, future = self.sent.pop(0)
        future.set_result(None) if error is None else future.set_exception(error)
        return what

    def answer_both(self) -> None:
        """The sync, and the write that follows it."""
        self.answer()
        self.answer()


@pytest.fixture
def requests(at: list[float]) -> Requests:
    at[0] = 120.0
    return Requests()


def test_a_proof_is_a_sync_and_then_a_write_that_changes_nothing(requests):
    proof = requests.pulse.prove()
    assert requests.pulse.prove() is proof
    assert requests.answer() == ("sync", "/")
    assert not proof.done()
    assert requests.answer() == ("multi", Check("/"))
    assert proof.result(0) == requests.pulse.proof == Proof(7, Shares(T), 100.0)
    assert requests.pulse.prove() is not proof


def test_what_is_proven_was_answered_half_a_tick_before(requests):
    for sent_s, answered_s in ((110.0, 113.75), (112.0, 113.76)):
        requests.echoes.sent(sent_s)
        requests.echoes.read(answered_s, outstanding=0)
    requests.pulse.prove()
    requests.answer_both()
    assert requests.pulse.proof.known_s == 110.0


@pytest.mark.parametrize(
    ("answers", "is_proven"),
    [
        ((ConnectionLost("x"),), False),
        ((None, ConnectionLost("x")), False),
        ((None, SessionExpired("x")), False),
        ((None, NoNode("x")), True),
        ((None, NoPermission("x")), True),
    ],
)
def test_only_what_a_quorum_has_agreed_to_proves(requests, answers, is_proven):
    proof = requests.pulse.prove()
    for error in answers:
        requests.answer(error)
    assert (proof.exception(0) is None) is is_proven
    assert (requests.pulse.proof.known_s == 100.0) is is_proven


def test_proofs_of_a_session_count_for_nothing_in_the_next(requests):
    requests.pulse.prove()
    requests.answer()
    requests.id = 8
    requests.answer()
    assert requests.pulse.proof == Proof(8, Shares(T))


def test_an_older_proof_takes_nothing_back_and_a_shorter_time_out_counts_at_once(requests):
    told: list[Proof] = []
    let_go = requests.pulse.hold(told.append)
    requests.answer_both()
    assert told == [Proof(7, Shares(T)), Proof(7, Shares(T), 100.0)]
    requests.echoes = Echoes(90.0, T)
    requests.pulse.prove()
    requests.answer_both()
    assert len(told) == 2
    requests.timeout_s = 12.0
    requests.pulse.look()
    assert told[2:] == [Proof(7, Shares(12.0), 100.0)]
    let_go()
    requests.timeout_s = 6.0
    requests.pulse.look()
    assert len(told) == 3
    requests.pulse.stop()


def test_a_holder_that_raises_is_logged_and_the_others_hear(requests):
    told: list[Proof] = []
    heard = [False]

    def fail(_proof: Proof) -> None:
        if heard[0]:
            raise ValueError
        heard[0] = True

    lets_go = [requests.pulse.hold(fail), requests.pulse.hold(told.append)]
    eventually(lambda: requests.sent)
    requests.answer_both()
    assert told[-1].known_s == 100.0
    for let_go in lets_go:
        let_go()
    requests.pulse.stop()
