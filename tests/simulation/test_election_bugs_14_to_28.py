"""Bugs 14 to 28 of elections as scenarios in simulated time; see test_election_scenarios."""

from __future__ import annotations

import pytest

from leaderq import Deposed
from leaderq.events import Stage, TermBegan, TermEnded, TermEnding, WorkResumed
from leaderq.term import Reason
from leaderq.zookeeper import SessionState, SetData
from simulation.scenarios import CONTROL, FOLDER, LINE, is_claim, is_create, scene


@scene()
def test_bug_14_a_listener_that_asks_zookeeper_hangs_nothing(s):
    a = s.actor("a")
    term = a.lead()
    refused: list[str] = []

    def ask(state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            with pytest.raises(RuntimeError, match="must not wait") as caught:
                a.session.exists("/")
            refused.append(str(caught.value))

    a.session.add_listener(ask)
    s.reset(a)
    s.until(lambda: a.events(WorkResumed))
    assert refused
    assert a.believes(term)


@scene()
def test_bug_15_a_claim_lost_together_with_its_znode_is_not_led_on(s):
    a = s.actor("a")
    beside = s.beside

    def delete() -> None:  # right behind the claim, whose answer never comes
        s.world.at(0.0, lambda: beside.begin(remove))

    def remove() -> None:
        for name in s.line():
            beside.session.delete(f"{LINE}/{name}")

    s.at(a, is_claim, delete)
    s.lose(a, is_claim)
    s.at(a, is_claim, lambda: s.cut(a))
    s.world.at(0.5, lambda: s.heal(a))
    term = a.lead()
    s.run(2.0)
    if not a.believes(term):  # its first claim was heard of, its second one follows
        a.conclude(term)
        term = a.lead()
    assert s.line() == {term.id: a.session.id}


@pytest.mark.parametrize("lose", ["session", "znode", "lease"])
@scene(10)
def test_bug_08_bug_16_a_candidate_that_lost_its_term_stands_and_leads_again(s, lose):
    a, b, term = s.standing("ab")
    if lose == "session":
        s.expire(a)
    elif lose == "znode":
        s.take(term.id)
    else:
        s.cut(a)
    s.until(term.ending.is_set)
    successor = b.await_term()
    assert not a.believes(term)
    s.heal(a)
    a.conclude(term)
    a.stand()
    s.until(lambda: len(s.line()) == 2)
    b.conclude(successor)
    assert a.await_term().number == successor.number + 1


@scene()
def test_bug_17_a_losers_release_leaves_its_successors_record_alone(s):
    a, b, term = s.standing("ab")
    s.take(term.id)
    successor = b.await_term()
    before = s.cluster.znodes()[f"{FOLDER}/term"]
    a.do(lambda: a.candidate.announce(term, Stage.EXECUTION))
    a.conclude(term)
    s.run(1.0)
    assert s.cluster.znodes()[f"{FOLDER}/term"] == before
    assert s.line() == {successor.id: b.session.id}
    assert b.believes(successor)


@scene(timeout_s=20.0)
def test_bug_19_a_ghost_sessions_znode_is_neither_adopted_nor_waited_for(s):
    first, a = s.actors("fa")
    term = first.lead()
    s.lose(a, is_create)
    s.at(a, is_create, lambda: s.world.at(0.0, lambda: s.network.cut("host-a")))
    a.stand()
    s.until(lambda: len(s.line()) == 2)
    ghost = a.session.id
    s.replace(a)
    s.heal(a)
    s.until(lambda: a.session.id in s.line().values())
    first.conclude(term)
    own = a.await_term(5.0)
    assert s.line()[own.id] == a.session.id != ghost


@pytest.mark.parametrize("again", [False, True], ids=["together", "one after the other"])
@scene(10)
def test_bug_20_two_sessions_lost_in_a_row_demote_once(s, again):
    a = s.actor("a")
    term = a.lead()
    for _ in range(2):
        old = a.session.id
        s.expire(a)
        s.until(lambda old=old: a.session.id not in (None, old))
        s.run(0.5 if again else 0.0)
    assert not a.believes(term)
    assert a.do(lambda: a.candidate.await_term(0.2)) is None
    a.conclude(term)
    assert [one.reason for one in a.events(TermEnding)] == [Reason.SESSION]
    assert [one.reason for one in a.events(TermEnded)] == [Reason.SESSION]
    term = a.lead()
    assert s.line() == {term.id: a.session.id}


@pytest.mark.parametrize("znode", ["term", "control"])
@scene(10)
def test_bug_21_a_claim_that_was_overtaken_is_made_again(s, znode):
    a, beside = s.actor("a"), s.beside
    left = [43, 42, 41]

    def overtake(request: object) -> str | None:
        if is_claim(request) and left:
            what = "number" if znode == "term" else "floor"
            content = b'{"%s": %d}' % (what.encode(), left.pop())
            beside.begin(lambda: beside.session.set(f"{FOLDER}/{znode}", content))
            return "request"
        return None

    s.rules.append(("host-a", overtake))
    assert a.lead().number == (44 if znode == "term" else 43)


@pytest.mark.parametrize("how", ["busy", "reconnecting", "cut off"])
@scene(10, timeout_s=20.0)
def test_bug_24_a_leaders_znode_goes_with_the_close_of_its_session(s, how):
    a, b, term = s.standing("ab")

    def close() -> None:
        for _ in range(50 if how == "busy" else 0):
            a.session.set_async("/", b"x" * 100)
        a.session.close()

    if how == "reconnecting":
        s.reset(a)
    if how == "cut off":
        s.cut(a)
        s.world.at(3.0, lambda: s.heal(a))
    a.do(close)
    assert b.await_term(6.0).unclean
    assert not a.believes(term)


@scene(timeout_s=4.0)
def test_bug_25_a_process_that_stood_still_past_its_lease_goes_on_with_nothing(s):
    a, b, term = s.standing("ab")
    a.process.freeze()
    successor = b.await_term(6.0)
    a.process.thaw()
    assert a.refuses(term)
    with pytest.raises(Deposed):
        a.do(lambda: term._fenced_write(term, [SetData(CONTROL, b"late")]))
    assert b.believes(successor)


@scene(timeout_s=3.0)
def test_bug_26_a_busy_connection_is_found_dead(s):
    a, b, c, _ = s.standing("abc")

    def ask() -> None:
        while not s.world.over:
            a.session.exists_async("/")
            c.session.exists_async("/")
            s.world.park(0.05)

    c.begin(ask)
    for one in (a, c):
        s.cut(one)
    s.until(lambda: c.session.state is SessionState.SUSPENDED, within_s=4.0)
    assert b.await_term(6.0).number == 2


@scene(servers=3, timeout_s=3.0, tick_s=0.5)
def test_bug_27_a_leader_beside_an_isolated_follower_steps_down_in_time(s):
    a, b = s.actor("a", server=0), s.actor("b", server=1)
    term = a.lead()
    b.wait_in_line()
    s.run(3.0)
    for other in (1, 2):
        s.ensemble.cut(0, other)
    assert b.await_term().number == 2
    assert not a.believes(term)
    for other in (1, 2):
        s.ensemble.heal(0, other)
    a.conclude(term)
    a.stand()
    s.until(lambda: len(s.line()) == 2)


@scene(10, servers=3, timeout_s=3.0, tick_s=0.5)
def test_bug_28_a_rolling_restart_shows_never_two_leaders(s):
    everybody = [s.actor(name, server=number) for number, name in enumerate("abc")]

    def serve(one):
        while not s.world.over:
            one.candidate.stand()
            term = one.candidate.await_term(1.0)
            if term is not None:
                while term.wait(0.5):
                    pass
                one.candidate.conclude(term, Reason.WITHDRAWN)
                s.world.park(0.2)

    for one in everybody:
        one.begin(lambda one=one: serve(one))
    s.run(3.0)
    for server in range(3):
        s.ensemble.stop(server)
        s.run(5.0)
        s.ensemble.start(server)
        s.run(3.0)
    s.until(lambda: len(s.line()) == 3)
    assert sum(len(one.events(TermBegan)) for one in everybody) > 1
