from __future__ import annotations

import pytest

from leaderq import Candidate, Observer, connect
from leaderq.election import Operator
from leaderq.election.decision import Role
from leaderq.errors import NoPermission
from leaderq.term import OpenTerm
from leaderq.testing import eventually
from leaderq.testing.waiting import patience
from leaderq.zookeeper import Security


def lead(candidate: Candidate) -> OpenTerm:
    candidate.stand()
    term = candidate.await_term(30.0 * patience())
    assert term is not None
    return term


def test_the_first_candidate_leads_and_the_second_waits(opened):
    with (
        Candidate(opened(timeout_s=30.0), "c", id="a") as a,
        Candidate(opened(timeout_s=30.0), "c", id="b") as b,
    ):
        term = lead(a)
        b.stand()
        eventually(lambda: b.role is Role.WAITING)
        assert (term.number, term.candidate, term.unclean) == (1, "a", False)
        assert b.await_term(0.0) is None
        view = Observer(opened(), "c").view()
        assert (view.leader, view.term, view.candidates) == ("a", 1, ("a", "b"))


def test_spoilt_wishes_keep_nobody_from_leading_and_the_next_wish_writes_them_again(session):
    control = "/leaderq/c/control"
    session.ensure_path(control)
    session.set(control, b"{")
    with Candidate(session, "c", id="a") as a:
        term = lead(a)
        assert Operator(session, "c").pause().paused
        eventually(lambda: term.paused)


def test_users_with_credentials_of_their_own_stand_below_one_root(zookeeper_server, znode_root):
    alice, bob = (Security(user=user, password=user) for user in ("alice", "bob"))
    with (
        connect(zookeeper_server.address, security=alice) as hers,
        connect(zookeeper_server.address, security=bob) as his,
        Candidate(hers, "a", id="a", root=znode_root) as a,
        Candidate(his, "b", id="b", root=znode_root) as b,
    ):
        lead(a)
        lead(b)
        with pytest.raises(NoPermission):  # what is hers stays hers
            his.set(znode_root + "/a/term", b"{}")
