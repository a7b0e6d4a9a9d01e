"""What a term is worth at its edges: shorter time-outs, lost answers, refused logins, spoilt
records.
"""

from __future__ import annotations

import threading

import pytest

from leaderq import Candidate, Deposed, Observer, connect
from leaderq.clock import now_s
from leaderq.election import Operator
from leaderq.election.decision import Role
from leaderq.errors import AccessRefused, ConfigurationError, LeaderqError, NoPermission
from leaderq.term import Reason
from leaderq.testing import ZooKeeperServer, eventually
from leaderq.zookeeper import Security, SessionState
from leaderq.zookeeper.session import Session


def waiting(candidate):
    return eventually(lambda: candidate.role is Role.WAITING)


def test_a_time_out_cut_to_3_s_by_a_restart_shortens_the_lease_at_once_and_leaves_no_overlap(
    electorate, won, fault_proxy
):
    with ZooKeeperServer() as server:
        proxy = fault_proxy(server.address)
        session = electorate.session(address=proxy.address, timeout_s=30.0)
        a = electorate.candidate("a", session)
        a.stand()
        term = won(a)
        assert term.remaining_s() > 10
        seen: list[tuple[SessionState, float, float]] = []
        # Added after the candidate's own listener, so the lease has been cut when it is called.
        session.add_listener(
            lambda state: seen.append((state, session.timeout_s, term.remaining_s()))
        )
        server.kill()
        eventually(lambda: session.state is SessionState.SUSPENDED)
        server.settings["maxSessionTimeout"] = "3000"
        server.start()
        _, granted, remaining = eventually(
            lambda: next((s for s in seen if s[0] is SessionState.CONNECTED), None)
        )
        assert granted == 3.0
        assert remaining <= 2.0
        b = electorate.candidate("b", electorate.session(address=server.address, timeout_s=30.0))
        b.stand()
        proxy.black_hole()
        successor = won(b)
        with pytest.raises(Deposed):
            term.check()
        assert successor.number == 2
        a.close()
        b.close()
        session.close()
        proxy.heal()


def test_a_term_whose_release_is_not_answered_is_never_won_again(electorate, won, fault_proxy):
    proxy = fault_proxy(electorate.address)
    a = electorate.candidate("a", address=proxy.address)
    a.stand()
    term = won(a)
    proxy.refuse()
    eventually(lambda: a.session.state is not SessionState.CONNECTED)
    assert not a.conclude(term, Reason.WITHDRAWN, timeout_s=0.1)
    a.stand()
    proxy.heal()
    assert won(a).number == 2


def test_a_term_that_was_given_back_passes_no_check_although_the_answer_is_withheld(
    electorate, won, fault_proxy
):
    proxy = fault_proxy(electorate.address)
    a = electorate.candidate("a", electorate.session(address=proxy.address))
    b = electorate.candidate("b")
    a.stand()
    term = won(a)
    b.stand()
    waiting(b)
    proxy.freeze_direction("to_client")
    giving_back = threading.Thread(target=a.conclude, args=(term, Reason.WITHDRAWN))
    giving_back.start()
    successor = won(b)
    assert a.role is Role.RELEASING  # no answer yet: nobody has told it
    with pytest.raises(Deposed):
        term.check()
    assert term.reason is Reason.WITHDRAWN
    successor.check()
    proxy.heal()
    giving_back.join()


def test_a_wish_written_between_survey_and_claim_is_known_to_the_new_leader(
    electorate, won, monkeypatch
):
    operator = Operator(electorate.session(), "c", root=electorate.root)
    a = electorate.candidate("a")
    multi = Session.multi
    interfered = threading.Event()

    def late_wish(self, operations, **options):
        if self is a.session and not interfered.is_set():
            interfered.set()
            operator.pause()
        return multi(self, operations, **options)

    monkeypatch.setattr(Session, "multi", late_wish)
    a.stand()
    assert won(a).paused
    assert interfered.is_set()


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
    a.stand()
    term = won(a)
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
    b.stand()
    waiting(b)
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


@pytest.mark.parametrize("leads", [True, False])
def test_a_candidate_that_broke_down_says_so_and_leaves_the_line(
    electorate, won, monkeypatch, leads
):
    first, second, third = (electorate.candidate(name, timeout_s=4.0) for name in "abc")
    broken = first if leads else second
    first.stand()
    term = won(first)
    second.stand()
    waiting(second)
    third.stand()
    waiting(third)

    def fault():
        raise ZeroDivisionError("a fault of ours")

    broken._inbox.put(fault)
    with pytest.raises(LeaderqError, match="broke down"):
        broken.await_term(30)
    if leads:
        assert term.reason is Reason.FENCED
        assert won(second).number == 2  # although nobody concludes the term
    else:
        eventually(
            lambda: len(Observer(third.session, "c", root=electorate.root).view().candidates) == 2
        )
        assert first.conclude(term, Reason.WITHDRAWN, timeout_s=30)
        assert won(third).number == 2


@pytest.mark.parametrize("former_terms", [0, 1])
def test_the_znode_of_a_broken_leader_stands_until_its_code_has_returned_or_nobody_can_trust_it(
    electorate, won, former_terms
):
    a, b = electorate.candidate("a", timeout_s=4.0), electorate.candidate("b")
    a.stand()
    term = won(a)
    for _ in range(former_terms):
        assert a.conclude(term, Reason.WITHDRAWN, timeout_s=30)
        a.stand()
        term = won(a)
    b.stand()
    waiting(b)
    lease_until_s = term.deadline

    def fault():
        raise ZeroDivisionError("a fault of ours")

    a._inbox.put(fault)
    won(b)
    assert now_s() >= lease_until_s + 4.0 / 3


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
    a.stand()
    term = won(a)
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
    with pytest.raises(ConfigurationError):
        operator.raise_floor(0)
    assert a.await_term(2.0) is None
    said = [r for r in caplog.records if r.levelname == "ERROR" and "raise-floor" in r.getMessage()]
    assert len(said) == 1  # though it was tried several times a second
    operator.raise_floor(1200)
    term = won(a)
    assert (term.number, term.unclean) == (1200, True)


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
