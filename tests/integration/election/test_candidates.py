"""Candidates on a real ZooKeeper: one leads, and another one waits."""

from __future__ import annotations

import pytest
from electorate import Electorate, term_of

from leaderq import Candidate, Observer, connect
from leaderq.election import Operator
from leaderq.errors import NoPermission
from leaderq.testing import eventually
from leaderq.zookeeper import Security


@pytest.fixture
def electorate(zookeeper_server, znode_root):
    made = Electorate(zookeeper_server.address, znode_root)
    yield made
    made.close()


def test_the_first_candidate_leads_and_the_second_waits(electorate):
    a, b = electorate.candidate("a"), electorate.candidate("b")
    term = electorate.lead(a)
    electorate.wait_in_line(b)
    assert (term.number, term.candidate, term.unclean) == (1, "a", False)
    assert b.await_term(0.0) is None
    view = Observer(electorate.session(), "c", root=electorate.root).view()
    assert (view.leader, view.term, view.candidates) == ("a", 1, ("a", "b"))


def test_spoilt_wishes_keep_nobody_from_leading_and_the_next_wish_writes_them_again(electorate):
    session = electorate.session()
    session.ensure_path(electorate.path("control"))
    session.set(electorate.path("control"), b"{")
    term = electorate.lead(electorate.candidate("a"))
    assert Operator(session, "c", root=electorate.root).pause().paused
    eventually(lambda: term.paused)


def test_users_with_credentials_of_their_own_stand_below_one_root(zookeeper_server, znode_root):
    alice, bob = (Security(user=user, password=user) for user in ("alice", "bob"))
    with (
        connect(zookeeper_server.address, security=alice) as hers,
        connect(zookeeper_server.address, security=bob) as his,
        Candidate(hers, "a", id="a", root=znode_root) as a,
        Candidate(his, "b", id="b", root=znode_root) as b,
    ):
        a.stand()
        term_of(a)
        b.stand()
        term_of(b)
        with pytest.raises(NoPermission):  # what is hers stays hers
            his.set(znode_root + "/a/term", b"{}")
