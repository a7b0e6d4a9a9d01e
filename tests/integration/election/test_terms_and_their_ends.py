"""What a term is worth at its edges: refused logins, spoilt records, credentials."""

from __future__ import annotations

import pytest

from leaderq import Candidate, connect
from leaderq.election import Operator
from leaderq.errors import AccessRefused, ConfigurationError, NoPermission
from leaderq.term import Reason
from leaderq.testing import eventually
from leaderq.zookeeper import Security
from leaderq.zookeeper.session import Session

REQUESTS = {
    "enlisting": "create",
    "surveying": "multi_read",
    "claiming": "multi",
    "leaving": "children",
    "releasing the term": "multi",
}


@pytest.mark.parametrize("doing", REQUESTS)
def test_a_refused_login_is_outlived(electorate, won, monkeypatch, doing):
    a, b = electorate.candidate("a"), electorate.candidate("b")
    term = electorate.lead(a)
    refusals: list[bool] = []
    ask = getattr(Session, REQUESTS[doing])

    def refused(self, *arguments, **options):
        if self is b.session and len(refusals) < 3:
            refusals.append(True)
            raise AccessRefused("ZooKeeper refused the credentials of this session")
        return ask(self, *arguments, **options)

    def refuse():
        monkeypatch.setattr(Session, REQUESTS[doing], refused)

    if doing == "enlisting":
        refuse()
    electorate.wait_in_line(b)
    if doing == "leaving":
        refuse()
        assert b.withdraw(timeout_s=30)
    elif doing in ("surveying", "claiming"):
        refuse()
    assert a.conclude(term, Reason.WITHDRAWN, timeout_s=30)
    if doing != "leaving":
        successor = won(b)
        if doing == "releasing the term":
            refuse()
        assert b.conclude(successor, Reason.WITHDRAWN, timeout_s=30)
    assert len(refusals) == 3


def test_spoilt_wishes_keep_nobody_from_leading_and_the_next_wish_writes_them_again(
    electorate, won, caplog
):
    session = electorate.session()
    session.ensure_path(electorate.path("control"))
    session.set(electorate.path("control"), b"{")
    a = electorate.candidate("a")
    for _ in range(3):
        a.stand()
        assert a.conclude(won(a), Reason.WITHDRAWN, timeout_s=30)
    said = [
        r
        for r in caplog.records
        if "the next leaderq pause or resume writes it again" in r.getMessage()
    ]
    assert len([r for r in said if r.levelname == "ERROR"]) == 1
    term = electorate.lead(a)
    assert Operator(session, "c", root=electorate.root).pause().paused
    eventually(lambda: term.paused)


def test_a_spoilt_term_record_is_said_once_and_raise_floor_repairs_it(electorate, won, caplog):
    session = electorate.session()
    session.ensure_path(electorate.path("term"))
    session.set(electorate.path("term"), b"something else")
    a = electorate.candidate("a")
    a.stand()
    eventually(lambda: "leaderq raise-floor" in caplog.text)
    operator = Operator(session, "c", root=electorate.root)
    for number in (0, 2**63, 10**6 + 1):
        with pytest.raises(ConfigurationError):
            operator.raise_floor(number)
    assert a.await_term(2.0) is None
    said = [r for r in caplog.records if r.levelname == "ERROR" and "raise-floor" in r.getMessage()]
    assert len(said) == 1  # though it was tried several times a second
    assert operator.raise_floor(1200) == 1200
    term = won(a)
    assert (term.number, term.unclean) == (1200, True)
    assert operator.raise_floor(3) == 1201
    assert operator.raise_floor(2 * 10**6, far=True) == 2 * 10**6
    assert not operator.view().repaired


def test_users_with_credentials_of_their_own_stand_below_one_root(
    zookeeper_server, znode_root, won
):
    alice, bob = (Security(user=user, password=user) for user in ("alice", "bob"))
    with (
        connect(zookeeper_server.address, security=alice) as hers,
        connect(zookeeper_server.address, security=bob) as his,
        Candidate(hers, "a", id="a", root=znode_root) as a,
        Candidate(his, "b", id="b", root=znode_root) as b,
    ):
        a.stand()
        won(a)
        b.stand()
        won(b)
        with pytest.raises(NoPermission):  # what is hers stays hers
            his.set(znode_root + "/a/term", b"{}")
