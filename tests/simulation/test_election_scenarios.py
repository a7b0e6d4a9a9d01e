"""The bugs that elections have had, and what was found in ours, as scenarios in simulated time.

The numbers are those of the list in ``docs/design/facts.md``. Each scenario is led with twenty
seeds; and in each of them nobody may begin a term that another one still believes in (see
:mod:`simulation.scenarios`). Bugs that are about something else than order and time:

=======  ===========================================================================================
bug      where it is tested
=======  ===========================================================================================
7        refused logins and ACLs: tests/faults/election/test_bugs_1_to_13.py; what is about
         interrupts, a thread that dies and closed sessions is here
14       a listener that *waits* on the event thread is refused:
         tests/faults/election/test_bugs_14_to_28.py; one that holds the thread is here
22, 23   Kafka's offsets and transactions: tests/faults/kafka and tests/integration/kafka
24       ``stop()`` of kazoo's own client: tests/faults/election/test_bugs_14_to_28.py; a session
         that is closed busy, suspended or cut off is here
25       a stopped process is here; the GIL held, and real processes:
         tests/faults/election/test_bug_25_in_processes.py
=======  ===========================================================================================
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from leaderq import Deposed, clock
from leaderq.election import Operator
from leaderq.errors import LeaderqError
from leaderq.events import (
    SessionChanged,
    Stage,
    Standing,
    TermBegan,
    TermEnded,
    TermEnding,
    WorkPaused,
    WorkResumed,
)
from leaderq.term import Reason
from leaderq.zookeeper import Create, Delete, SessionState, SetData
from simulation.scenarios import (
    FOLDER,
    LINE,
    Scene,
    is_claim,
    is_close,
    is_create,
    is_multi,
    is_release,
    scene,
)

CONTROL = f"{FOLDER}/control"


@scene()
def test_bug_01_a_new_session_never_adopts_the_old_sessions_znode(s: Scene) -> None:
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
def test_bug_02_reconnections_in_a_row_take_nothing_from_a_leader(s: Scene) -> None:
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
def test_bug_03_a_deleted_znode_is_noticed_at_once(s: Scene) -> None:
    a, b = s.actors("ab")
    term = a.lead()
    b.wait_in_line()
    s.ask(lambda beside: beside.delete(f"{LINE}/{term.id}"))
    s.until(term.ending.is_set, within_s=0.1)
    assert a.refuses(term)
    assert term.reason is Reason.NODE_DELETED
    assert b.await_term(0.2).number == 2


@scene(timeout_s=20.0)
def test_bug_03_a_deleted_znode_is_noticed_at_once_after_a_reconnection(s: Scene) -> None:
    a = s.actor("a")
    term = a.lead()
    s.reset(a)
    s.run(7.0)  # over the next renewal
    s.ask(lambda beside: beside.delete(f"{LINE}/{term.id}"))
    s.until(term.ending.is_set, within_s=0.1)


@scene()
def test_bug_04_a_line_that_vanished_between_two_terms_is_made_again(s: Scene) -> None:
    a = s.actor("a")
    assert a.conclude(a.lead())
    s.ask(lambda beside: beside.delete(LINE))
    assert a.lead().number == 2


@scene()
def test_bug_04_a_line_that_vanished_under_those_in_it_is_made_again(s: Scene) -> None:
    a, b = s.actors("ab")
    term = a.lead()
    b.wait_in_line()
    vanish = [Delete(f"{LINE}/{name}") for name in s.line()]
    s.ask(lambda beside: beside.multi([*vanish, Delete(LINE)]))
    s.until(term.ending.is_set)
    assert b.await_term().number == 2
    a.conclude(term)
    a.wait_in_line()


@scene()
def test_bug_05_a_watch_that_fires_after_close_makes_no_znode(s: Scene) -> None:
    a, b = s.actors("ab")
    term = b.lead()
    a.wait_in_line()
    closing = a.begin(lambda: a.candidate.close(timeout_s=30.0))
    concluding = b.begin(lambda: b.candidate.conclude(term, Reason.WITHDRAWN))
    closing.result()
    concluding.result()
    s.run(20.0)
    assert s.line() == {}


@scene()
def test_bug_05_closed_while_it_makes_its_znode_again(s: Scene) -> None:
    a, b = s.actors("ab")
    term = b.lead()
    a.wait_in_line()
    (own,) = set(s.line()) - {term.id}
    with a.stalled(Standing) as is_reached:
        s.ask(lambda beside: beside.delete(f"{LINE}/{own}"))
        b.conclude(term)
        s.until(is_reached)
        assert len(s.line()) == 1
        closing = a.begin(lambda: a.candidate.close(timeout_s=30.0))
    closing.result()
    s.run(20.0)
    assert s.line() == {}


@scene()
def test_bug_06_a_znode_whose_creation_was_not_answered_blocks_nobody(s: Scene) -> None:
    a, b = s.actors("ab")
    lost = s.lose(a, is_create)
    term = a.lead()
    assert lost
    s.until(lambda: s.line() == {term.id: a.session.id})
    b.wait_in_line()
    a.conclude(term)
    assert b.await_term().number == 2


@scene()
def test_bug_06_a_deletion_that_was_lost_is_repeated(s: Scene) -> None:
    holder, a, behind = s.actors("hab")
    term = holder.lead()
    a.wait_in_line()
    behind.wait_in_line()
    s.cut(a)
    assert not a.do(lambda: a.candidate.withdraw(timeout_s=0.1))
    s.reset(a)
    s.heal(a)
    assert a.do(lambda: a.candidate.withdraw(timeout_s=30.0))
    holder.conclude(term)
    assert behind.await_term(0.2).number == 2


@scene()
def test_bug_06_a_claim_whose_answer_was_lost_wins_one_term(s: Scene) -> None:
    a = s.actor("a")
    lost = s.lose(a, is_claim)
    term = a.lead()
    assert (len(lost), term.number, term.unclean) == (1, 1, False)
    assert s.record()["id"] == term.id
    a.do(lambda: term.write([SetData(CONTROL, b"")]))


@scene()
def test_bug_07_many_interrupts_end_a_term_once(s: Scene) -> None:
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


@scene()
def test_bug_07_a_thread_that_died_does_not_block_the_line(s: Scene) -> None:
    a, b, c = s.actors("abc")
    term = a.lead()
    b.wait_in_line()
    c.wait_in_line()

    def run_out() -> None:
        raise MemoryError

    b.do(lambda: b.candidate._inbox.put(run_out))
    a.conclude(term)
    assert c.await_term().number == 2


@scene()
def test_bug_07_a_closed_session_breaks_no_candidate(s: Scene) -> None:
    a, b = s.actors("ab")
    term = a.lead()
    b.wait_in_line()
    for one in (b, a):
        one.do(one.session.close)
    assert term.reason is Reason.SESSION
    assert a.refuses(term)
    a.do(lambda: a.candidate.conclude(term, Reason.WITHDRAWN, timeout_s=0.1))
    for one in (a, b):
        assert one.do(lambda one=one: one.candidate.withdraw(timeout_s=10.0))
    assert a.do(lambda: a.candidate.await_term(0)) is None


@scene(timeout_s=4.0)
def test_bug_08_a_leader_cut_off_has_ended_before_the_next_one_leads(s: Scene) -> None:
    a, b = s.actors("ab")
    term = a.lead()
    b.wait_in_line()
    s.run(3.0)
    cut_s = s.now_s
    s.cut(a)
    assert b.await_term(1.1 * 4.0 + 1.0).number == 2
    assert s.now_s > cut_s + 2.0
    assert not a.believes(term)


@scene(timeout_s=20.0)
def test_bug_09_a_session_replaced_between_look_and_claim_wins_nothing(s: Scene) -> None:
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


@scene(timeout_s=20.0)
def test_bug_09_a_lease_runs_from_when_the_claim_was_sent(s: Scene) -> None:
    a = s.actor("a")
    s.at(a, is_claim, lambda: s.network.cut("host-a", there=False))
    a.stand()
    s.until(lambda: s.record().get("id"))
    carried_out_s = a.process.clock_s()
    s.run(3.0)
    s.heal(a)
    term = a.await_term()
    assert term.deadline <= carried_out_s + 20.0 * 2 / 3


@scene(timeout_s=3.0)
def test_bug_09_a_term_is_over_by_the_clock_whatever_stands_still(s: Scene) -> None:
    a, b = s.actors("ab")
    term = a.lead()
    b.wait_in_line()
    with a.stalled(WorkPaused) as is_reached:
        s.ask(lambda beside: Operator(beside, "c").pause())
        s.until(is_reached)  # from here on nothing renews the lease, and nobody notices its end
        s.run(2.01)
        assert a.refuses(term)
        assert not a.do(lambda: term.wait(0.0))


@scene()
def test_bug_10_a_term_is_over_before_it_is_released(s: Scene) -> None:
    a, b = s.actors("ab")
    term = a.lead()
    b.wait_in_line()
    seen = s.at(a, is_release, lambda: s.network.cut("host-a", there=False))
    assert not a.do(lambda: a.candidate.conclude(term, Reason.WITHDRAWN, timeout_s=0.1))
    assert seen
    assert b.await_term(0.2).number == 2
    assert a.refuses(term)


@pytest.mark.parametrize("end", ["replace", "close"])
def test_bug_10_a_term_ends_before_its_session_whatever_stands_still(end: str) -> None:
    @scene(10)
    def test_bug_10(s: Scene) -> None:
        a, b = s.actors("ab")
        term = a.lead()
        b.wait_in_line()
        with a.stalled(WorkPaused) as is_reached:
            s.ask(lambda beside: Operator(beside, "c").pause())
            s.until(is_reached)
            if end == "replace":
                s.replace(a)
            else:
                a.do(a.session.close)
            assert b.await_term().number == 2
            assert not a.believes(term)
        assert term.reason is Reason.SESSION

    test_bug_10()


@scene(timeout_s=4.0)
def test_bug_11_answers_to_reads_do_not_keep_a_leader(s: Scene) -> None:
    a = s.actor("a")
    term = a.lead()
    answered: list[object] = []

    def read() -> None:
        while not term.ending.is_set():
            with suppress(LeaderqError):
                answered.append(a.session.exists(LINE))
            clock.sleep(0.05)

    a.begin(read)
    s.rules.append(("host-a", lambda request: "request" if is_multi(request) else None))
    s.until(term.ending.is_set, within_s=4.0)
    assert a.refuses(term)
    assert term.reason is Reason.LEASE
    assert len(answered) > 5


@scene()
def test_bug_11_a_write_never_lands_after_its_term(s: Scene) -> None:
    a = s.actor("a")
    term = a.lead()
    s.cut(a)
    with pytest.raises(LeaderqError):
        a.do(lambda: term.write([SetData(CONTROL, b"late")]))
    assert a.refuses(term)
    with pytest.raises(Deposed):
        a.do(lambda: term.write([SetData(CONTROL, b"later")]))
    s.heal(a)
    s.until(lambda: a.session.state is SessionState.CONNECTED)
    s.run(5.0)
    assert s.cluster.znodes()[CONTROL] not in (b"late", b"later")


@pytest.mark.parametrize("how", ["withdraw", "close"])
def test_bug_12_a_candidate_stopped_while_suspended_leaves_no_znode(how: str) -> None:
    @scene(10, timeout_s=20.0)
    def test_bug_12(s: Scene) -> None:
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

    test_bug_12()


@scene(timeout_s=20.0)
def test_bug_13_the_end_of_the_one_in_front_is_heard_at_once(s: Scene) -> None:
    a, b = s.actors("ab")
    term = a.lead()
    b.wait_in_line()
    a.conclude(term)
    assert b.await_term(0.2).number == 2


@scene(timeout_s=20.0)
def test_bug_13_the_one_in_front_ended_while_nobody_was_connected(s: Scene) -> None:
    a, b = s.actors("ab")
    term = a.lead()
    b.wait_in_line()
    s.cut(b)
    s.reset(b)
    s.until(lambda: b.session.state is SessionState.SUSPENDED)
    a.conclude(term)
    s.heal(b)
    assert b.await_term(15.0).number == 2


@scene(timeout_s=6.0)
def test_bug_14_a_listener_that_holds_the_thread_keeps_no_lost_term(s: Scene) -> None:
    a, b = s.actors("ab")
    term = a.lead()
    b.wait_in_line()
    with a.stalled(WorkPaused) as is_reached:
        s.reset(a)
        s.until(is_reached)
        s.until(lambda: a.session.state is SessionState.CONNECTED)
        s.replace(a)
        b.await_term()
        assert not a.believes(term)
        assert term.reason is Reason.SESSION


@scene()
def test_bug_15_a_claim_lost_together_with_its_znode_is_not_led_on(s: Scene) -> None:
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
def test_bug_16_a_candidate_that_lost_its_term_stands_and_leads_again(lose: str) -> None:
    @scene(10)
    def test_bug_16(s: Scene) -> None:
        a, b = s.actors("ab")
        term = a.lead()
        b.wait_in_line()
        if lose == "session":
            s.expire(a)
        elif lose == "znode":
            s.ask(lambda beside: beside.delete(f"{LINE}/{term.id}"))
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

    test_bug_16()


@scene()
def test_bug_17_a_losers_release_leaves_its_successors_record_alone(s: Scene) -> None:
    a, b = s.actors("ab")
    term = a.lead()
    b.wait_in_line()
    s.ask(lambda beside: beside.delete(f"{LINE}/{term.id}"))
    successor = b.await_term()
    before = s.cluster.znodes()[f"{FOLDER}/term"]
    a.do(lambda: a.candidate.announce(term, Stage.EXECUTION))
    a.conclude(term)
    s.run(1.0)
    assert s.cluster.znodes()[f"{FOLDER}/term"] == before
    assert s.line() == {successor.id: b.session.id}
    assert b.believes(successor)


@scene(timeout_s=4.0)
def test_bug_17_a_losers_own_clean_up_is_refused(s: Scene) -> None:
    a, b = s.actors("ab")
    term = a.lead()
    b.wait_in_line()
    s.cut(a)
    successor = b.await_term()
    b.do(lambda: successor.write([Create("/shared", b"the successor's")]))
    s.heal(a)
    s.until(lambda: a.session.state is SessionState.CONNECTED)
    for write in (term.write, lambda ops: term._fenced_write(term, ops)):
        with pytest.raises(Deposed):
            a.do(lambda write=write: write([Delete("/shared")]))
    assert "/shared" in s.cluster.znodes()


@scene()
def test_bug_18_short_losses_of_the_connection_keep_the_term(s: Scene) -> None:
    a = s.actor("a", timeout_s=20.0)
    term = a.lead()
    for flap in range(1, 6):
        s.reset(a)
        s.until(lambda flap=flap: len(a.events(WorkResumed)) == flap)
    assert a.believes(term)
    assert a.events(TermEnding) == []
    assert len(a.events(TermBegan)) == len(a.events(Standing)) == 1


@scene(timeout_s=20.0)
def test_bug_19_a_ghost_sessions_znode_is_neither_adopted_nor_waited_for(s: Scene) -> None:
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
def test_bug_20_two_sessions_lost_in_a_row_demote_once(again: bool) -> None:
    @scene(10)
    def test_bug_20(s: Scene) -> None:
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

    test_bug_20()


@scene()
def test_bug_20_a_waiting_candidate_that_loses_two_sessions_stands_once(s: Scene) -> None:
    a, b = s.actors("ab")
    a.lead()
    b.wait_in_line()
    for _ in range(2):
        old = b.session.id
        s.expire(b)
        s.until(lambda old=old: b.session.id not in (None, old))
    s.run(2.0)
    assert sorted(s.line().values()) == sorted([a.session.id, b.session.id])


@pytest.mark.parametrize("znode", ["term", "control"])
def test_bug_21_a_claim_that_was_overtaken_is_made_again(znode: str) -> None:
    @scene(10)
    def test_bug_21(s: Scene) -> None:
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

    test_bug_21()


@pytest.mark.parametrize("how", ["busy", "reconnecting", "cut off"])
def test_bug_24_a_leaders_znode_goes_with_the_close_of_its_session(how: str) -> None:
    @scene(10, timeout_s=20.0)
    def test_bug_24(s: Scene) -> None:
        a, b = s.actors("ab")
        term = a.lead()
        b.wait_in_line()

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

    test_bug_24()


@scene(timeout_s=4.0)
def test_bug_25_a_process_that_stood_still_past_its_lease_goes_on_with_nothing(s: Scene) -> None:
    a, b = s.actors("ab")
    term = a.lead()
    b.wait_in_line()
    a.process.freeze()
    successor = b.await_term(6.0)
    a.process.thaw()
    assert a.refuses(term)
    with pytest.raises(Deposed):
        a.do(lambda: term._fenced_write(term, [SetData(CONTROL, b"late")]))
    assert b.believes(successor)


@scene(timeout_s=3.0)
def test_bug_26_a_busy_connection_is_found_dead(s: Scene) -> None:
    a, b, c = s.actors("abc")
    a.lead()
    b.wait_in_line()
    c.wait_in_line()

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
def test_bug_27_a_leader_beside_an_isolated_follower_steps_down_in_time(s: Scene) -> None:
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
def test_bug_28_a_rolling_restart_shows_never_two_leaders(s: Scene) -> None:
    everybody = [s.actor(name, server=number) for number, name in enumerate("abc")]

    def serve(one):  # type: ignore[no-untyped-def]
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
