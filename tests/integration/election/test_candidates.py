"""Candidates on a real ZooKeeper: one leads, its end lets in exactly the next one, and a zombie is
refused by the server.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from leaderq import Deposed, Observer
from leaderq.election.decision import Role
from leaderq.errors import SessionClosed
from leaderq.events import TermBegan, TermEnded
from leaderq.term import Reason
from leaderq.testing import eventually
from leaderq.zookeeper import Create, SetData


def test_the_first_candidate_leads_and_the_second_waits(electorate):
    a, b = electorate.candidate("a"), electorate.candidate("b")
    term = electorate.lead(a)
    electorate.wait_in_line(b)
    assert (term.number, term.candidate, term.unclean) == (1, "a", False)
    assert b.await_term(0.0) is None
    view = Observer(electorate.session(), "c", root=electorate.root).view()
    assert (view.leader, view.term, view.candidates) == ("a", 1, ("a", "b"))


def test_a_fenced_write_passes_with_the_users_own_operations(electorate):
    a = electorate.candidate("a")
    term = electorate.lead(a)
    made, _ = term.write(
        [Create(electorate.root + "/data", b"1"), SetData(electorate.root + "/data", b"2")]
    )
    assert made == electorate.root + "/data"
    assert electorate.session().get(made)[0] == b"2"


def test_a_zombies_write_is_refused_by_the_server_when_its_znode_is_gone(electorate):
    session = electorate.session()
    a = electorate.candidate("a", session)
    term = electorate.lead(a)
    electorate.session().delete(electorate.path("candidates", term.id))
    with pytest.raises(Deposed):
        # around the local check
        term._fenced_write(term, (SetData(electorate.path("control"), b"zombie"),))
    assert electorate.session().get(electorate.path("control"))[0] != b"zombie"


def test_events_tell_the_story_of_a_term(electorate, won):
    a = electorate.candidate("a")
    a.stand()
    assert a.conclude(won(a), Reason.WITHDRAWN, timeout_s=30)
    told = [event for event in electorate.events if isinstance(event, (TermBegan, TermEnded))]
    assert told == [TermBegan("c", "a", 1, False), TermEnded("c", "a", 1, Reason.WITHDRAWN, True)]


def test_two_candidates_under_one_id_are_told_of(electorate, caplog):
    a, double = electorate.candidate("a", timeout_s=2.0), electorate.candidate("a", timeout_s=2.0)
    electorate.lead(a)
    electorate.wait_in_line(double)
    eventually(lambda: "give each its own --id career=c id=a znodes=" in caplog.text)


def test_a_session_closed_under_its_candidates_is_said_once_and_none_waits_on(electorate, caplog):
    session = electorate.session()
    standing = [electorate.candidate(name, session) for name in "abcdef"]
    electorate.lead(standing[0])
    for one in standing[1:]:
        one.stand()
    eventually(lambda: all(one.role is Role.WAITING for one in standing[1:]))
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(standing[1].await_term, 600.0)
        session.close()
        assert waiting.result(30) is None
    eventually(lambda: all(one.role is Role.IDLE for one in standing[1:]))
    with pytest.raises(SessionClosed):
        standing[1].await_term()
    told = [r.getMessage() for r in caplog.records if r.levelname in ("WARNING", "ERROR")]
    assert len([line for line in told if "session closed while candidates stand" in line]) == 1
    assert not [line for line in told if "kept from the election" in line]
