"""Candidates on a real ZooKeeper: one leads, its end lets in exactly the next one, and a zombie is
refused by the server.
"""

from __future__ import annotations

import pytest

from leaderq import Deposed, Observer
from leaderq.election.decision import Role
from leaderq.events import Stage, Standing, TermBegan, TermEnded
from leaderq.term import Reason
from leaderq.testing import eventually
from leaderq.zookeeper import Create, SessionState, SetData, end_session


def waiting(candidate):
    return eventually(lambda: candidate.role is Role.WAITING)


def test_the_first_candidate_leads_and_the_second_waits(electorate, won):
    a, b = electorate.candidate("a"), electorate.candidate("b")
    a.stand()
    term = won(a)
    b.stand()
    waiting(b)
    assert (term.number, term.candidate, term.unclean) == (1, "a", False)
    assert b.await_term(0.0) is None
    view = Observer(electorate.session(), "c", root=electorate.root).view()
    assert (view.leader, view.term, view.candidates) == ("a", 1, ("a", "b"))


def test_after_a_clean_end_the_next_leads_under_the_next_number(electorate, won):
    a, b = electorate.candidate("a"), electorate.candidate("b")
    a.stand()
    first = won(a)
    b.stand()
    waiting(b)
    assert a.conclude(first, Reason.WITHDRAWN, timeout_s=30)
    second = won(b)
    assert (second.number, second.unclean) == (2, False)
    with pytest.raises(Deposed):
        first.check()
    a.stand()
    waiting(a)
    assert b.conclude(second, Reason.WITHDRAWN, timeout_s=30)
    assert won(a).number == 3


def test_the_lease_is_kept_up_for_longer_than_the_session_time_out(electorate, won):
    a = electorate.candidate("a", timeout_s=6.0)
    a.stand()
    term = won(a)
    begun = term.deadline
    eventually(lambda: term.deadline > begun + 6.0, timeout_s=60)
    term.check()


def test_a_fenced_write_passes_with_the_users_own_operations(electorate, won):
    a = electorate.candidate("a")
    a.stand()
    term = won(a)
    made, _ = term.write(
        [Create(electorate.root + "/data", b"1"), SetData(electorate.root + "/data", b"2")]
    )
    assert made == electorate.root + "/data"
    assert electorate.session().get(made)[0] == b"2"


def test_a_zombies_write_is_refused_by_the_server_when_its_znode_is_gone(electorate, won):
    session = electorate.session()
    a = electorate.candidate("a", session)
    a.stand()
    term = won(a)
    electorate.session().delete(electorate.path("candidates", term.id))
    with pytest.raises(Deposed):
        # around the local check
        term._fenced_write(term, (SetData(electorate.path("control"), b"zombie"),))
    assert electorate.session().get(electorate.path("control"))[0] != b"zombie"


def test_deleting_the_leaders_znode_deposes_it_and_it_stands_again(electorate, won):
    a = electorate.candidate("a")
    a.stand()
    term = won(a)
    electorate.session().delete(electorate.path("candidates", term.id))
    assert term.ending.wait(30)
    assert term.reason is Reason.NODE_DELETED
    a.conclude(term, Reason.WITHDRAWN)
    a.stand()
    again = won(a)
    assert (again.number, again.unclean) == (2, True)


def test_a_candidate_whose_session_is_lost_while_waiting_stands_again_under_the_new_one(
    electorate, won
):
    a = electorate.candidate("a")
    a.stand()
    term = won(a)
    session = electorate.session()
    b = electorate.candidate("b", session)
    b.stand()
    waiting(b)
    old = session.id
    assert end_session(session.address, session.credentials, timeout_s=30)
    eventually(lambda: session.id not in (None, old))
    eventually(
        lambda: (
            len(
                [
                    event
                    for event in electorate.events
                    if isinstance(event, Standing) and event.candidate == "b"
                ]
            )
            > 1
        )
    )
    a.conclude(term, Reason.WITHDRAWN)
    won(b).check()


def test_a_term_record_that_is_not_ours_is_never_overwritten(electorate, won, caplog):
    session = electorate.session()
    session.ensure_path(electorate.path("term"))
    session.set(electorate.path("term"), b"something else")
    a = electorate.candidate("a")
    a.stand()
    eventually(lambda: "leaderq raise-floor" in caplog.text)
    assert session.get(electorate.path("term"))[0] == b"something else"
    session.set(electorate.path("term"), b'{"number": 41}')
    assert won(a).number == 42


def test_the_stage_is_shown_to_observers_and_outlives_the_term(electorate, won):
    a = electorate.candidate("a")
    a.stand()
    term = won(a)
    observer = Observer(electorate.session(), "c", root=electorate.root)
    a.announce(term, Stage.EXECUTION)
    shown = observer.wait_until(lambda view: view.stage == "execution", timeout_s=30)
    assert (shown.leader, shown.stage) == ("a", "execution")
    assert a.conclude(term, Reason.STEP_DOWN, timeout_s=30)
    over = observer.view()
    assert (over.leader, over.term, over.reason) == (None, 1, "step-down")


def test_events_tell_the_story_of_a_term(electorate, won):
    a = electorate.candidate("a")
    a.stand()
    assert a.conclude(won(a), Reason.WITHDRAWN, timeout_s=30)
    told = [event for event in electorate.events if isinstance(event, (TermBegan, TermEnded))]
    assert told == [TermBegan("c", "a", 1, False), TermEnded("c", "a", 1, Reason.WITHDRAWN, True)]


def test_a_term_whose_record_was_deleted_is_given_back_all_the_same(electorate, won):
    a, b = electorate.candidate("a"), electorate.candidate("b")
    a.stand()
    term = won(a)
    b.stand()
    waiting(b)
    electorate.session().delete(electorate.path("term"))
    a.conclude(term, Reason.WITHDRAWN)
    assert won(b).candidate == "b"


def test_withdrawing_while_zookeeper_is_away_is_repeated_until_the_znode_is_gone(
    electorate, won, fault_proxy, caplog
):
    """However often it had to be tried: the mark by which the znode is found must not wear out."""
    caplog.set_level("DEBUG", logger="leaderq.election.enlistment")
    proxy = fault_proxy(electorate.address)
    a, b = electorate.candidate("a"), electorate.candidate("b", address=proxy.address, timeout_s=30)
    a.stand()
    won(a)
    b.stand()
    waiting(b)
    proxy.refuse()
    eventually(lambda: b.session.state is not SessionState.CONNECTED)
    assert not b.withdraw(timeout_s=0.1)
    eventually(lambda: caplog.text.count("id=b while=leaving") > 9, timeout_s=30)
    proxy.heal()
    line, session = electorate.path("candidates"), electorate.session()
    eventually(lambda: len(session.children(line)) == 1, timeout_s=20)


def test_two_candidates_under_one_id_are_told_of(electorate, won, caplog):
    a, double = electorate.candidate("a", timeout_s=2.0), electorate.candidate("a", timeout_s=2.0)
    a.stand()
    won(a)
    double.stand()
    waiting(double)
    eventually(lambda: "give each its own --id career=c id=a znodes=" in caplog.text)
