"""The bugs that elections have had, and what was found in ours, as scenarios in simulated time.

The numbers are those of ``docs/design/facts.md``; bugs 14 to 28 are in
:mod:`simulation.test_election_bugs_14_to_28`. In none may anybody begin a term that another one
still believes in (see :mod:`simulation.scenarios`). Elsewhere are of 7 refused logins
(test_runners), 22 and 23 (test_kafka_promises, tests/integration/kafka), of 12 and 24 the close of
a real session (tests/integration/zookeeper/test_life.py), and of 25 real processes
(tests/acceptance/running/test_rude_careers.py).
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from leaderq import Deposed
from leaderq.base import clock
from leaderq.election import Operator
from leaderq.errors import LeaderqError, SessionClosed
from leaderq.events import SessionChanged, Standing, TermBegan, TermEnding, WorkPaused, WorkResumed
from leaderq.term import Reason
from leaderq.testing.simulation.ensemble.messages import RequestType
from leaderq.zookeeper import Delete, SessionState, SetData
from leaderq.zookeeper.proof import Shares
from simulation import scenarios
from simulation.scenarios import CONTROL, LINE, is_claim, is_close, is_create, is_multi, scene


@scene()
def test_bug_01_a_new_session_never_adopts_the_old_sessions_znode(s):
    a, b = s.actors("ab")
    term = b.lead()
    a.wait_in_line()
    old = a.session.id
    s.lose(a, is_close, "request")
    s.network.cut("host-a")  # nobody can end the old session
    s.replace(a)
    s.heal(a)
    s.until(lambda: a.session.state is SessionState.CONNECTED and a.session.id != old)
    b.conclude(term)
    term = a.await_term()
    assert s.line()[term.id] == a.session.id


@scene()
def test_bug_02_bug_18_reconnections_in_a_row_take_nothing_from_a_leader(s):
    a = s.actor("a", timeout_s=20.0)
    with a.stalled(Standing) as is_reached:
        a.stand()
        s.until(is_reached)
        for _ in range(3):
            s.reset(a)
            s.run(0.5)
    term = a.await_term()
    for _ in range(3):
        s.reset(a)
        s.run(0.5)
    assert len(a.events(SessionChanged)) == 12
    assert a.believes(term)
    assert s.line() == {term.id: a.session.id}
    assert (len(a.events(TermBegan)), a.events(TermEnding)) == (1, [])


@scene(timeout_s=20.0)
def test_bug_03_a_deleted_znode_is_noticed_at_once_after_a_reconnection(s):
    a = s.actor("a")
    term = a.lead()
    s.run(0.1 * s.world.faults())  # the watch is asked for, or set
    s.reset(a)
    s.run(7.0)  # over the next renewal
    s.take(term.id)
    s.until(term.ending.is_set, within_s=0.1)


@scene()
def test_bug_04_a_line_that_vanished_under_those_in_it_is_made_again(s):
    a, b, term = s.standing("ab")
    s.is_forced = True
    vanish = [Delete(f"{LINE}/{name}") for name in s.line()]
    s.ask(lambda beside: beside.multi([*vanish, Delete(LINE)]))
    s.until(term.ending.is_set)
    assert b.await_term().number == 2
    a.conclude(term)
    a.wait_in_line()


@scene()
def test_bug_05_closed_while_it_makes_its_znode_again(s):
    a, b = s.actors("ab")
    term = b.lead()
    a.wait_in_line()
    (own,) = set(s.line()) - {term.id}
    with a.stalled(Standing) as is_reached:
        s.take(own)
        b.conclude(term)
        s.until(is_reached)
        assert len(s.line()) == 1
        closing = a.begin(lambda: a.candidate.close(timeout_s=30.0))
    closing.result()
    s.run(20.0)
    assert s.line() == {}


@scene()
def test_bug_06_a_znode_whose_creation_was_not_answered_blocks_nobody(s):
    a, b = s.actors("ab")
    lost = s.lose(a, is_create)
    term = a.lead()
    assert lost
    s.until(lambda: s.line() == {term.id: a.session.id})
    b.wait_in_line()
    a.conclude(term)
    assert b.await_term().number == 2


@scene()
def test_bug_06_a_deletion_that_was_lost_is_repeated(s):
    holder, a, behind, term = s.standing("hab")
    s.cut(a)
    assert not a.do(lambda: a.candidate.withdraw(timeout_s=0.1))
    s.reset(a)
    s.heal(a)
    assert a.do(lambda: a.candidate.withdraw(timeout_s=30.0))
    holder.conclude(term)
    assert behind.await_term(0.2).number == 2


@scene()
def test_bug_07_many_interrupts_end_a_term_once(s):
    a = s.actor("a")
    for number in (1, 2):
        term = a.lead()
        assert term.number == number
        for reason in (Reason.STEP_DOWN, Reason.HEALTH, Reason.TRANSFER):
            a.do(lambda reason=reason: a.candidate.step_down(reason))
        assert not a.do(lambda: a.candidate.withdraw(timeout_s=0.1))
        assert a.conclude(term)
        a.do(lambda: a.candidate.step_down(Reason.STEP_DOWN))
        assert a.do(lambda: a.candidate.withdraw(timeout_s=30.0))
    assert [one.reason for one in a.events(TermEnding)] == [Reason.STEP_DOWN] * 2


def run_out() -> None:
    raise MemoryError


@scene()
def test_bug_07_a_thread_that_died_does_not_block_the_line(s):
    a, b, c, term = s.standing("abc")

    b.do(lambda: b.candidate._inbox.put(run_out))
    a.conclude(term)
    assert c.await_term().number == 2


@scene(5)
def test_bug_07_the_znode_of_a_broken_leader_stands_until_nobody_can_trust_it(s):
    a, b = s.actors("ab")
    term = a.lead()
    a.conclude(term)
    term = a.lead()
    b.wait_in_line()
    a.do(lambda: a.candidate._inbox.put(run_out))
    with pytest.raises(LeaderqError, match="broke down"):
        a.await_term()
    assert term.reason is Reason.FENCED
    until_s = term.deadline + a.session.timeout_s / 3
    b.await_term()  # although nobody concludes the other term
    assert a.do(clock.now_s) >= until_s


@scene()
def test_bug_07_a_closed_session_breaks_no_candidate(s):
    a, b, term = s.standing("ab")
    for one in (b, a):
        one.do(one.session.close)
    assert term.reason is Reason.SESSION
    assert a.refuses(term)
    a.do(lambda: a.candidate.conclude(term, Reason.WITHDRAWN, timeout_s=0.1))
    for one in (a, b):
        assert one.do(lambda one=one: one.candidate.withdraw(timeout_s=10.0))
    with pytest.raises(SessionClosed):
        a.do(lambda: a.candidate.await_term(0))


@scene(timeout_s=20.0)
def test_bug_09_a_lease_runs_from_when_the_claim_was_sent(s):
    a = s.actor("a")
    s.at(a, is_claim, lambda: s.network.cut("host-a", there=False))
    a.stand()
    s.until(lambda: s.record().get("id"))
    carried_out_s = a.process.clock_s()
    s.run(3.0)
    s.heal(a)
    term = a.await_term()
    assert term.deadline <= carried_out_s + Shares(20.0).trusted_s


@scene(timeout_s=3.0)
def test_bug_09_a_term_is_over_by_the_clock_whatever_stands_still(s):
    a, _, term = s.standing("ab")
    with a.stalled(WorkPaused) as is_reached:
        s.ask(lambda beside: Operator(beside, "c").pause())
        s.until(is_reached)
        s.cut(a)  # from here on nothing proves the session, and nobody notices the end of the lease
        s.run(Shares(3.0).trusted_s)
        assert a.refuses(term)
        assert not a.do(lambda: term.wait(0.0))


@scene()
def test_bug_10_a_term_is_over_before_it_is_released(s):
    a, b, term = s.standing("ab")
    seen = s.at(a, scenarios.is_release, lambda: s.network.cut("host-a", there=False))
    assert not a.do(lambda: a.candidate.conclude(term, Reason.WITHDRAWN, timeout_s=0.1))
    assert seen
    assert b.await_term(0.2).number == 2
    assert a.refuses(term)


@scene()
def test_bug_11_a_write_never_lands_after_its_term(s):
    a = s.actor("a")
    term = a.lead()
    s.cut(a)
    with pytest.raises(LeaderqError):
        a.do(lambda: term.write([SetData(CONTROL, b"late")]))
    s.until(term.ending.is_set)
    assert a.refuses(term)
    with pytest.raises(Deposed):
        a.do(lambda: term.write([SetData(CONTROL, b"later")]))
    s.heal(a)
    s.until(lambda: a.session.state is SessionState.CONNECTED)
    s.run(5.0)
    assert s.cluster.znodes()[CONTROL] not in (b"late", b"later")


@pytest.mark.parametrize("how", ["withdraw", "close"])
@scene(10, timeout_s=20.0)
def test_bug_12_a_candidate_stopped_while_suspended_leaves_no_znode(s, how):
    a, first, behind = s.actors("afb")
    term = first.lead()
    a.wait_in_line()
    behind.wait_in_line()
    s.cut(a)
    s.reset(a)
    s.until(lambda: a.session.state is SessionState.SUSPENDED)
    leave = getattr(a.candidate, how)
    a.do(lambda: leave(timeout_s=0.1))
    a.stand()  # counts for nothing after close(), and is the last word after withdraw()
    if how == "withdraw":
        a.do(lambda: leave(timeout_s=0.1))
    s.heal(a)
    s.until(lambda: len(s.line()) == 2, within_s=10.0)
    first.conclude(term)
    assert behind.await_term(0.2).number == 2


@scene(timeout_s=20.0)
def test_bug_13_the_one_in_front_ended_while_nobody_was_connected(s):
    a, b, term = s.standing("ab")
    s.cut(b)
    s.reset(b)
    s.until(lambda: b.session.state is SessionState.SUSPENDED)
    a.conclude(term)
    s.heal(b)
    assert b.await_term(15.0).number == 2


@scene(3)
def test_a_candidate_that_waits_asks_once_each_t_and_only_the_next_one_proves_its_session(s):
    asked: dict[str, list[int]] = {"host-b": [], "host-c": []}
    for host, of_host in asked.items():
        s.rules.append((host, lambda request, of_host=of_host: of_host.append(request.type)))
    a, *_ = s.standing("abc")
    assert RequestType.SYNC not in asked["host-c"]
    s.run(3 * s.timeout_s)  # the first look also reads who stands there
    for of_host in asked.values():
        of_host.clear()
    s.run(3 * s.timeout_s + 0.5)
    waited = [[kind for kind in one if kind != RequestType.PING] for one in asked.values()]
    assert waited == [[RequestType.MULTI_READ] * 3] * 2
    s.expire(a)
    s.until(lambda: s.record()["number"] == 2)
    s.run(0.5)
    assert RequestType.SYNC in asked["host-b"]
    assert RequestType.SYNC not in asked["host-c"]


@scene(timeout_s=20.0)
def test_work_stays_paused_when_an_old_proof_comes(s):
    a = s.actor("a")
    a.session._tick_s = 4.0
    term = a.lead()
    s.run(8.0)
    proof = a.session.pulse.proof
    s.network.cut("host-a", there=False)
    s.run(proof.known_s + 15.0 - a.process.clock_s())
    assert term.paused
    s.heal(a)
    s.until(lambda: a.session.pulse.proof.known_s > proof.known_s)
    s.run(0.01)
    assert a.process.clock_s() < term.deadline
    assert not a.events(WorkResumed)


@pytest.mark.parametrize("end", ["replace", "replace after a break", "close"])
@scene(10)
def test_bug_10_bug_14_a_term_ends_before_its_session_whatever_stands_still(s, end):
    a, b, term = s.standing("ab")
    with a.stalled(WorkPaused) as is_reached:
        if end == "replace after a break":
            s.reset(a)
        else:
            s.ask(lambda beside: Operator(beside, "c").pause())
        s.until(is_reached)
        s.until(lambda: a.session.state is SessionState.CONNECTED)
        if end == "close":
            a.do(a.session.close)
        else:
            s.replace(a)
        assert b.await_term().number == 2
        assert not a.believes(term)
    assert term.reason is Reason.SESSION


@scene(timeout_s=20.0)
def test_bug_09_a_session_replaced_between_look_and_claim_wins_nothing(s):
    a = s.actor("a")
    with a.stalled(Standing) as is_reached:
        a.stand()
        s.until(is_reached)
        old = a.session.id
        s.lose(a, is_close, "request")
        s.cut(a)
        s.replace(a)
        s.heal(a)
        s.until(lambda: a.session.id not in (None, old))
    term = a.await_term()
    assert s.line()[term.id] == a.session.id == s.line()[s.record()["id"]]


@scene(5, timeout_s=4.0)
def test_bug_11_answers_to_reads_do_not_keep_a_leader(s):
    a = s.actor("a")
    term = a.lead()
    answered: list[object] = []

    def read() -> None:
        while not term.ending.is_set():
            with suppress(LeaderqError):
                answered.append(a.session.exists(LINE))
            clock.sleep(0.001)

    a.begin(read)
    s.rules.append(("host-a", lambda request: "request" if is_multi(request) else None))
    s.until(term.ending.is_set, within_s=4.0)
    assert a.refuses(term)
    assert term.reason is Reason.LEASE
    assert len(answered) > 5


@scene(timeout_s=6.0)
def test_a_proof_that_took_longer_than_a_beat_is_followed_by_the_next_one(s):
    a = s.actor("a")
    term = a.lead()
    s.network.cut("host-a", back=False)
    s.run(2.0 * Shares(6.0).beat_s)
    s.heal(a)
    s.run(12.0)
    assert a.believes(term)
    assert not a.events(WorkPaused)
