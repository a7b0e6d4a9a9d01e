"""Bugs 1 to 13 of the 28 that leader elections have had, recreated on a real server.

Each test names its bug; a heading says what it was and where it was met. Where kazoo's own recipe
has the bug too, it stands in the same situation and is seen to fail, so the situation is real. The
numbers are those of the list in ``docs/design/facts.md``.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from electorate import Electorate
from electorate import term_of as won
from kazoo.client import KazooState
from kazoo.exceptions import ConnectionClosedError, NoAuthError, NoNodeError
from kazoo.security import OPEN_ACL_UNSAFE, make_digest_acl
from kazoo_contender import KazooContender, started, stop_within
from reply_rules import AnswerFromThePast, HoldRepliesTo, LoseRequests
from stall import Stall
from wire_requests import (
    ends,
    is_claim,
    is_create,
    is_delete,
    is_listing,
    is_multi,
    is_release,
    is_renewal,
    is_watch_event,
)

from leaderq import Candidate, Deposed, LeaderCareer
from leaderq.clock import now_s
from leaderq.config import Settings
from leaderq.election import Operator
from leaderq.election.decision import Role
from leaderq.events import (
    Event,
    EventBus,
    SessionChanged,
    Stage,
    Standing,
    TermBegan,
    TermEnding,
    WorkPaused,
    WorkResumed,
)
from leaderq.running import Runner
from leaderq.term import Reason, Term
from leaderq.testing import FaultProxy, ZooKeeperServer, eventually
from leaderq.zookeeper import Delete, Security, Session, SessionState, SetData

LONG_S = 60.0
"""A session time-out so long that no renewal and no timed look comes during a test."""


def leading(candidate: Candidate) -> Any:
    """Let ``candidate`` stand, and return the term that it wins."""
    candidate.stand()
    return won(candidate)


def kazoo_waiting(contender: KazooContender) -> None:
    """Let ``contender`` stand, and return when it waits for another one."""
    contender.stand()
    assert contender.waits.wait(30)


def kazoo_leading(contender: KazooContender) -> KazooContender:
    """Let ``contender`` stand, and return it when it leads."""
    contender.stand()
    assert contender.leads.wait(30)
    return contender


def leads_in_vain(contender: KazooContender) -> bool:
    """Whether its leader works on, in good faith."""
    return contender.works and contender.lock.is_acquired


def connected(session: Session, *, not_as: int | None = None) -> None:
    """Return when ``session`` is connected, and is not the session ``not_as``."""
    eventually(lambda: session.state is SessionState.CONNECTED and session.id not in (None, not_as))


def suspended(session: Session) -> None:
    """Return when ``session`` has lost its connection."""
    eventually(lambda: session.state is not SessionState.CONNECTED)


def asked(proxy: FaultProxy, request: Callable[[bytes], bool]) -> threading.Event:
    """An event that is set as soon as such a request has come to the proxy."""
    seen = threading.Event()
    proxy.add_rule(HoldRepliesTo(lambda body: request(body) and bool(seen.set())))  # holds none
    return seen


def election_threads() -> set[threading.Thread]:
    """Those of all candidates in this process."""
    return {thread for thread in threading.enumerate() if "candidate" in thread.name}


def at_each_beginning(electorate: Electorate, id: str, look: Callable[[], Any]) -> list[Any]:
    """What ``look`` returns whenever a term of candidate ``id`` begins, at that very moment."""
    seen: list[Any] = []
    electorate.buses[id].subscribe(TermBegan, lambda event: seen.append(look()))
    return seen


# -- 1: a new session adopts the old session's znode, and two lead (CURATOR-696, druid#16411) ------


def test_bug_01_a_new_session_never_adopts_the_old_sessions_znode(electorate, proxy) -> None:
    a, b = electorate.candidate("a", address=proxy.address), electorate.candidate("b")
    term = leading(b)
    electorate.wait_in_line(a)
    old = a.session.id
    proxy.add_rule(LoseRequests(ends(old)))
    a.session.replace("a test wants it")
    connected(a.session, not_as=old)
    b.conclude(term, Reason.WITHDRAWN)
    term = won(a)
    assert electorate.line()[term.id] == a.session.id


def test_control_01_kazoo_adopts_it_and_two_lead(proxy, kazoo_client, kazoo_contender) -> None:
    client = kazoo_client(proxy.address, timeout_s=6.0)
    holder = kazoo_leading(kazoo_contender("holder"))
    adopter = kazoo_contender("adopter", client)
    kazoo_waiting(adopter)
    old, _ = client.client_id
    proxy.refuse()
    eventually(lambda: client.state == KazooState.SUSPENDED)
    assert stop_within(client, 15)
    proxy.heal()
    client.start(timeout=30)
    assert client.client_id[0] != old
    holder.let_go.set()
    assert adopter.leads.wait(30)
    assert client.get(f"{adopter.path}/{adopter.lock.node}")[1].ephemeralOwner == old
    kazoo_leading(kazoo_contender("other"))
    assert leads_in_vain(adopter)


# -- 2: handlers of reconnections interleave, and one deletes what another leads with --------------
#       (CURATOR-504, -620, -644, -653)


def test_bug_02_reconnections_in_a_row_take_nothing_from_a_leader(electorate, proxy) -> None:
    """kazoo's recipes do nothing at a reconnection, so they do not have this bug."""
    a = electorate.candidate("a", address=proxy.address, timeout_s=LONG_S)

    def reconnect() -> None:
        heard = len(electorate.told(SessionChanged, "a"))
        proxy.cut()
        eventually(lambda: len(electorate.told(SessionChanged, "a")) >= heard + 2)
        connected(a.session)

    with Stall(electorate.buses["a"], Standing) as stall:
        a.stand()
        stall.await_reached()
        for _ in range(3):  # all are heard of between the look at the line and the claim, and later
            reconnect()
    term = won(a)
    for _ in range(3):
        reconnect()
    a.announce(term, Stage.EXECUTION)  # comes after all that was heard of
    eventually(lambda: electorate.record()["stage"] == "execution")
    term.check()
    assert electorate.line() == {term.id: a.session.id}
    assert len(electorate.told(TermBegan, "a")) == 1
    assert electorate.told(TermEnding, "a") == []


# -- 3: the leader's znode is deleted, and it never notices (CURATOR-171) --------------------------


def test_bug_03_a_deleted_znode_is_noticed_at_once(electorate, proxy, kazoo_contender) -> None:
    a, b = electorate.candidate("a", address=proxy.address), electorate.candidate("b")
    term = leading(a)
    electorate.wait_in_line(b)
    a.announce(term, Stage.EXECUTION)  # comes after all that the beginning of the term asks for
    eventually(lambda: electorate.record()["stage"] == "execution")
    proxy.add_rule(HoldRepliesTo(is_renewal))  # only the watch can tell
    electorate.beside.delete(electorate.path("candidates", term.id))
    assert term.ending.wait(15)
    assert term.reason is Reason.NODE_DELETED
    with pytest.raises(Deposed):
        term.check()
    assert won(b).number == 2

    kazoo = kazoo_leading(kazoo_contender("kazoo"))
    kazoo.client.delete(f"{kazoo.path}/{kazoo.lock.node}")
    kazoo_leading(kazoo_contender("other"))
    assert leads_in_vain(kazoo)


# -- 4: the folder of the line vanishes, and nobody ever leads again (CURATOR-724, fluss#4382) -----


def test_bug_04_the_line_vanished_between_two_terms(electorate, kazoo_contender) -> None:
    a = electorate.candidate("a")
    a.conclude(leading(a), Reason.WITHDRAWN, timeout_s=30)
    electorate.beside.delete(electorate.path("candidates"))
    assert leading(a).number == 2

    kazoo = kazoo_leading(kazoo_contender("kazoo"))
    kazoo.let_go.set()
    eventually(lambda: kazoo.outcome == "returned")
    kazoo.client.delete(kazoo.path)
    for _ in range(2):
        kazoo.stand()
        eventually(lambda: isinstance(kazoo.outcome, NoNodeError))


def test_bug_04_the_line_vanished_under_those_in_it(electorate, kazoo_contender) -> None:
    a, b = electorate.candidate("a"), electorate.candidate("b")
    term = leading(a)
    electorate.wait_in_line(b)
    folder = electorate.path("candidates")
    znodes = [Delete(f"{folder}/{name}") for name in electorate.line()]
    electorate.beside.multi([*znodes, Delete(folder)])
    assert term.ending.wait(30)
    assert won(b).number == 2
    a.conclude(term, Reason.WITHDRAWN)
    electorate.wait_in_line(a)

    kazoo, other = kazoo_leading(kazoo_contender("kazoo")), kazoo_contender("other")
    kazoo_waiting(other)
    vanish = other.client.transaction()
    for name in other.client.get_children(other.path):
        vanish.delete(f"{other.path}/{name}")
    vanish.delete(other.path)
    assert vanish.commit() == [True] * 3
    eventually(lambda: isinstance(other.outcome, NoNodeError))
    assert leads_in_vain(kazoo)


# -- 5: close() races a watch, and the znode is made again after it (CURATOR-3) --------------------


def test_bug_05_a_watch_that_fires_after_close_makes_no_znode(electorate, proxy) -> None:
    """kazoo's watches make no znodes, so its recipes do not have this bug."""
    a, b = electorate.candidate("a", address=proxy.address), electorate.candidate("b")
    term = leading(b)
    electorate.wait_in_line(a)
    later, heard = electorate.path("later"), threading.Event()
    a.session.exists(later, watch=lambda event: heard.set())
    proxy.add_rule(HoldRepliesTo(is_listing))
    closing = threading.Thread(target=lambda: a.close(timeout_s=30))
    closing.start()
    eventually(lambda: a.role is Role.RELEASING)
    b.conclude(term, Reason.WITHDRAWN, timeout_s=30)
    electorate.beside.create(later)
    assert heard.wait(30)  # and before it, that b's znode is gone
    proxy.heal()
    closing.join(40)
    b.close(timeout_s=30)
    eventually(lambda: not election_threads())
    assert electorate.line() == {}


def test_bug_05_closed_while_it_makes_its_znode_again(electorate) -> None:
    a, b = electorate.candidate("a"), electorate.candidate("b")
    term = leading(b)
    electorate.wait_in_line(a)
    (own,) = set(electorate.line()) - {term.id}
    with Stall(electorate.buses["a"], Standing) as stall:
        electorate.beside.delete(electorate.path("candidates", own))
        b.conclude(term, Reason.WITHDRAWN, timeout_s=30)
        stall.await_reached()  # the znode was made again, and is first
        assert len(electorate.line()) == 1
        closing = threading.Thread(target=lambda: a.close(timeout_s=30))
        closing.start()
    closing.join(40)
    b.close(timeout_s=30)
    eventually(lambda: not election_threads())
    assert electorate.line() == {}
    assert electorate.record()["ended"] is not None


# -- 6: acquiring is interrupted, and a znode is left that blocks the line -------------------------
#       (CURATOR-62, -202, -205, kazoo#732)


def test_bug_06_a_znode_made_twice_is_deleted(electorate, proxy, kazoo_contender) -> None:
    """The reply to the creation is lost, and the server asked next does not show the znode yet."""
    a, b = electorate.candidate("a", address=proxy.address), electorate.candidate("b")
    proxy.add_rule(AnswerFromThePast(is_listing))
    proxy.drop_reply_to(is_create)
    term = leading(a)
    assert proxy.dropped == 1
    eventually(lambda: electorate.line() == {term.id: a.session.id})
    electorate.wait_in_line(b)
    a.conclude(term, Reason.WITHDRAWN)  # and does not stand again, which would sweep what it left
    assert won(b).number == 2

    beside = kazoo_contender("beside")
    kazoo = kazoo_contender("kazoo", address=proxy.address)
    proxy.add_rule(AnswerFromThePast(is_listing))
    proxy.drop_reply_to(is_create)
    assert kazoo.election.contenders() == []
    kazoo.stand()
    eventually(lambda: beside.election.contenders() == ["kazoo", "kazoo"])
    assert not kazoo.leads.wait(1.0)  # it waits behind itself


def test_bug_06_a_lost_deletion_is_repeated(electorate, proxy, kazoo_contender) -> None:
    holder, behind = electorate.candidate("holder"), electorate.candidate("behind")
    a = electorate.candidate("a", address=proxy.address)
    term = leading(holder)
    electorate.wait_in_line(a)
    electorate.wait_in_line(behind)
    kazoo_holder = kazoo_leading(kazoo_contender("holder"))
    kazoo = kazoo_contender("kazoo", address=proxy.address)
    kazoo_waiting(kazoo)
    proxy.freeze_direction("to_server")
    gave_up = asked(proxy, is_delete)
    assert not a.withdraw(timeout_s=0.1)
    kazoo.election.cancel()
    assert gave_up.wait(30)
    proxy.cut()  # what both asked for is lost with their connections
    proxy.heal()
    eventually(lambda: kazoo.outcome == "returned")
    assert a.withdraw(timeout_s=30)
    assert len(electorate.line()) == 2
    holder.conclude(term, Reason.WITHDRAWN)
    assert won(behind).number == 2

    kazoo_holder.let_go.set()
    kazoo_behind = kazoo_contender("behind").stand()
    assert not kazoo_behind.leads.wait(1.0)  # nor later, while the session of who gave up lives
    assert kazoo_behind.election.contenders() == ["kazoo", "behind"]


def test_bug_06_a_claim_whose_answer_was_lost_wins_one_term(electorate, proxy) -> None:
    a = electorate.candidate("a", address=proxy.address)
    proxy.drop_reply_to(is_claim)
    term = leading(a)
    assert proxy.dropped == 1
    assert (term.number, term.unclean) == (1, False)
    assert electorate.record()["id"] == term.id
    term.write([SetData(electorate.path("control"), b"")])


# -- 7: a second interrupt breaks the next standing, an error kills the election thread ------------
#       (CURATOR-15, -16, -104, -518)


def test_bug_07_many_interrupts_end_a_term_once(electorate, kazoo_contender) -> None:
    a = electorate.candidate("a")
    for number in (1, 2):
        term = leading(a)
        assert term.number == number
        for reason in (Reason.STEP_DOWN, Reason.HEALTH, Reason.TRANSFER):
            a.step_down(reason)
        assert not a.withdraw(timeout_s=0.1)
        assert a.conclude(term, Reason.WITHDRAWN, timeout_s=30)
        a.step_down(Reason.STEP_DOWN)
        assert a.withdraw(timeout_s=30)
    ends = [event.reason for event in electorate.told(TermEnding, "a")]
    assert ends == [Reason.STEP_DOWN] * 2

    kazoo = kazoo_leading(kazoo_contender("kazoo"))
    for _ in range(2):
        kazoo.election.cancel()
    kazoo.let_go.set()
    eventually(lambda: kazoo.outcome == "returned")
    kazoo.leads.clear()
    kazoo.stand()
    eventually(lambda: kazoo.outcome == "returned")
    assert not kazoo.leads.is_set()  # it was alone, and was not let in


def raise_in(thread: threading.Thread) -> None:
    """Let ``thread`` run out of memory at its next step in Python."""
    ident = ctypes.c_ulong(thread.ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(MemoryError))


def test_bug_07_a_thread_that_died_does_not_block_the_line(electorate, kazoo_contender) -> None:
    a, b, c = (electorate.candidate(id) for id in "abc")
    term = leading(a)
    before = election_threads()
    electorate.wait_in_line(b)
    (thread,) = election_threads() - before
    electorate.wait_in_line(c)
    raise_in(thread)
    b.step_down(Reason.WITHDRAWN)  # means nothing to one that waits, but wakes it
    a.conclude(term, Reason.WITHDRAWN)
    eventually(lambda: electorate.record()["number"] == 2)  # of b, had it survived, or of c

    first, second, third = (kazoo_contender(id) for id in ("first", "second", "third"))
    kazoo_leading(first)
    kazoo_waiting(second)
    kazoo_waiting(third)
    raise_in(second.thread)
    first.let_go.set()
    eventually(lambda: isinstance(second.outcome, MemoryError))
    assert not third.leads.wait(1.0)


def test_bug_07_a_closed_session_breaks_no_candidate(electorate, caplog) -> None:
    """For kazoo see bug 12."""
    a = electorate.candidate("a")
    term = leading(a)
    a.session.close()
    assert term.reason is Reason.SESSION
    a.conclude(term, Reason.WITHDRAWN, timeout_s=0.1)
    assert a.withdraw(timeout_s=10)  # there is nothing left to give back
    assert a.await_term(0) is None
    assert "broke down" not in caplog.text


def test_bug_07_a_closed_session_lets_a_waiting_candidate_withdraw(electorate) -> None:
    a, b = electorate.candidate("a"), electorate.candidate("b")
    leading(a)
    electorate.wait_in_line(b)
    b.session.close()
    assert b.withdraw(timeout_s=10)


def test_bug_07_a_lease_that_ends_after_its_session_was_closed_breaks_no_candidate(
    electorate,
) -> None:
    """The candidate's thread stands still meanwhile, so it hears of the lease first."""
    a = electorate.candidate("a", timeout_s=4.0)
    term = leading(a)
    with Stall(electorate.buses["a"], WorkPaused) as stall:
        Operator(electorate.beside, "c", root=electorate.root).pause()
        stall.await_reached()
        a.session.close()
        eventually(lambda: now_s() > term.deadline)
    a.conclude(term, Reason.WITHDRAWN, timeout_s=10)
    assert a.withdraw(timeout_s=10)
    assert a.await_term(0) is None  # which says so if it broke down


USERS = """
Server {{
    org.apache.zookeeper.server.auth.DigestLoginModule required
    user_alice="{password}";
}};
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[Callable[[str], ZooKeeperServer]]:
    """Starts one server, again with each call, whose user alice has the password given."""
    running: list[ZooKeeperServer] = []

    def start(password: str) -> ZooKeeperServer:
        port = running[0].port if running else None
        for server in running:
            server.stop()
        jaas = USERS.format(password=password)
        running[:] = [ZooKeeperServer(jaas=jaas, data_dir=tmp_path, port=port).start()]
        return running[0]

    yield start
    for server in running:
        server.stop()


def test_bug_07_a_refused_login_ends_no_thread(guarded, znode_root, request) -> None:
    right, wrong = "wonderland", "looking-glass"
    electorate = Electorate(guarded(right).address, znode_root)
    request.addfinalizer(electorate.close)
    login = Security(user="alice", password=right, mechanism="DIGEST-MD5")
    a, b = (electorate.candidate(id, security=login, timeout_s=6.0) for id in "ab")
    sasl = {"mechanism": "DIGEST-MD5", "username": "alice", "password": right}
    kazoo = started(electorate.address, timeout_s=6.0, sasl_options=sasl)
    request.addfinalizer(lambda: stop_within(kazoo, 15))
    term = leading(a)
    electorate.wait_in_line(b)

    def was_refused(id: str) -> bool:
        return "lost" in {event.state for event in electorate.told(SessionChanged, id)}

    guarded(wrong)
    eventually(lambda: was_refused("a") and was_refused("b") and kazoo.state == KazooState.LOST)
    guarded(right)
    a.conclude(term, Reason.WITHDRAWN, timeout_s=30)
    assert won(b).number == 2

    with pytest.raises(ConnectionClosedError):
        kazoo.get_children("/")  # its client is closed for good, and with it every recipe


def test_bug_07_a_refusal_ends_no_thread(electorate, proxy, kazoo_contender, caplog) -> None:
    a, b = electorate.candidate("a"), electorate.candidate("b", address=proxy.address)
    term = leading(a)
    electorate.wait_in_line(b)
    kazoo = kazoo_leading(kazoo_contender("kazoo"))
    other = kazoo_contender("other", address=proxy.address)
    kazoo_waiting(other)
    admin = kazoo_contender("admin").client
    admin.add_auth("digest", "admin:secret")

    def allow(acl: list[Any]) -> None:
        for folder in (electorate.path("candidates"), kazoo.path):
            admin.set_acls(folder, acl)

    allow([make_digest_acl("admin", "secret", all=True)])
    proxy.cut()  # so that they look at the line
    eventually(lambda: "id=b while=surveying error=these credentials may not" in caplog.text)
    eventually(lambda: isinstance(other.outcome, NoAuthError))
    allow(OPEN_ACL_UNSAFE)
    a.conclude(term, Reason.WITHDRAWN)
    assert won(b).number == 2

    assert other.election.contenders() == ["kazoo", "other"]  # it has gone, its znode has not


# -- 8: a suspended leader is tolerated for T after it was late already (CURATOR-460) --------------


def test_bug_08_a_leader_cut_off_has_ended_in_time(electorate, proxy, kazoo_contender) -> None:
    a = electorate.candidate("a", address=proxy.address, timeout_s=4.0)
    b = electorate.candidate("b", timeout_s=LONG_S)
    term = leading(a)
    electorate.wait_in_line(b)
    left = at_each_beginning(electorate, "b", term.remaining_s)
    kazoo = kazoo_leading(kazoo_contender("kazoo", address=proxy.address, timeout_s=4.0))
    other = kazoo_contender("other")
    kazoo_waiting(other)
    proxy.black_hole()
    assert won(b).number == 2
    assert left == [0.0]
    assert other.leads.wait(30)
    assert leads_in_vain(kazoo)
    eventually(lambda: kazoo.client.state == KazooState.SUSPENDED)  # it will not hear of LOST


# -- 9: the lease is not looked at again after the wait (Jepsen on etcd 3.4.3) ---------------------


def test_bug_09_a_session_replaced_between_look_and_claim_wins_nothing(electorate, proxy) -> None:
    """For kazoo, which looks at its session neither before nor after, see the control of bug 1."""
    a = electorate.candidate("a", address=proxy.address)
    electorate.line()  # from here on the session beside is there

    def leads_with_its_own() -> bool:
        return electorate.line().get(electorate.record()["id"]) == a.session.id

    looks = at_each_beginning(electorate, "a", leads_with_its_own)
    with Stall(electorate.buses["a"], Standing) as stall:
        a.stand()
        stall.await_reached()
        old = a.session.id
        proxy.add_rule(LoseRequests(ends(old)))
        a.session.replace("a test wants it")
        connected(a.session, not_as=old)
        assert list(electorate.line().values()) == [old]  # its znode stands
    eventually(lambda: looks)
    assert looks[0]


def test_bug_09_a_lease_runs_from_when_the_claim_was_sent(electorate, proxy) -> None:
    a = electorate.candidate("a", address=proxy.address, timeout_s=LONG_S)
    electorate.line()  # from here on the session beside is there
    proxy.add_rule(HoldRepliesTo(is_claim))
    a.stand()
    eventually(lambda: electorate.record()["id"])
    carried_out_s = now_s()
    eventually(lambda: now_s() > carried_out_s + 0.5)  # the answer takes a while
    proxy.heal()
    assert won(a).deadline <= carried_out_s + LONG_S * 2 / 3


class Rude(LeaderCareer):
    """Never looks at its term; keeps how long the term lasted when each stage began."""

    def __init__(self) -> None:
        self.is_slow = False
        self.began = threading.Event()
        self.inaugurated: list[float] = []
        self.units: list[float] = []
        self.handed_over = threading.Event()

    def _begin(self, term: Term) -> None:
        self.began.set()
        if self.is_slow:
            eventually(lambda: term.remaining_s() == 0.0)

    def inaugurate(self, term: Term) -> None:
        self.inaugurated.append(term.remaining_s())

    def execute(self, term: Term) -> None:
        self.units.append(term.remaining_s())
        threading.Event().wait(0.005)

    def handOver(self, term: Term) -> None:  # noqa: N802
        self.handed_over.set()


@pytest.fixture
def rude(electorate: Electorate, proxy: FaultProxy) -> Iterator[Rude]:
    """A career that runs, from ``start()`` on, as candidate ``a`` behind the proxy; T is 3 s."""
    career = Rude()
    settings = Settings(career="c", id="a", root=electorate.root)
    bus = electorate.buses.setdefault("a", EventBus())
    bus.subscribe(Event, electorate.events.append)
    session = electorate.session(timeout_s=3.0, address=proxy.address)
    runner = Runner(career, session, settings=settings, events=bus)
    thread = threading.Thread(target=runner.run, name="runner", daemon=True)
    career.start = thread.start
    yield career
    proxy.heal()
    runner.stop()
    thread.join(30)


def test_bug_09_no_unit_begins_after_the_lease_whatever_stands_still(electorate, rude) -> None:
    with Stall(electorate.buses["a"], WorkResumed) as stall:
        rude.start()
        eventually(lambda: rude.units)
        operator = Operator(electorate.beside, "c", root=electorate.root)
        operator.pause()
        eventually(lambda: electorate.told(WorkPaused, "a"))
        operator.resume()
        stall.await_reached()  # from here on the election thread notices nothing
        eventually(lambda: rude.units[-1] == 0.0 or rude.handed_over.is_set())
        begun = len(rude.units)
        eventually(lambda: rude.handed_over.is_set() or len(rude.units) > begun + 5)
    # One may have passed the last look at the clock in time, and have begun just after.
    assert sum(left == 0.0 for left in rude.units) <= 1


def test_bug_09_nobody_is_inaugurated_after_the_lease(electorate, proxy, rude) -> None:
    """What comes before ``inaugurate`` in leaderq's own careers may take longer than a lease."""
    rude.is_slow = True
    rude.start()
    assert rude.began.wait(30)
    proxy.black_hole()
    assert rude.handed_over.wait(30)
    assert rude.inaugurated == []
    assert rude.units == []


# -- 10: the leader's work is not stopped, because the release blocks (paasta#2450) ----------------


def test_bug_10_a_term_is_over_before_it_is_released(electorate, proxy, kazoo_contender) -> None:
    a, b = electorate.candidate("a", address=proxy.address), electorate.candidate("b")
    term = leading(a)
    electorate.wait_in_line(b)
    left = at_each_beginning(electorate, "b", term.remaining_s)
    kazoo = kazoo_leading(kazoo_contender("kazoo", address=proxy.address))
    other = kazoo_contender("other")
    kazoo_waiting(other)
    proxy.add_rule(HoldRepliesTo(lambda request: is_release(request) or is_delete(request)))
    assert not a.conclude(term, Reason.WITHDRAWN, timeout_s=0.1)
    assert won(b).number == 2
    assert left == [0.0]

    kazoo.let_go.set()
    assert other.leads.wait(30)
    assert (kazoo.outcome, kazoo.lock.is_acquired) == (None, True)  # it blocks, and believes


@pytest.mark.parametrize("end", ["replace", "close"])
def test_bug_10_a_term_ends_before_its_session_whatever_stands_still(electorate, end) -> None:
    a, b = electorate.candidate("a"), electorate.candidate("b")
    term = leading(a)
    electorate.wait_in_line(b)
    left = at_each_beginning(electorate, "b", term.remaining_s)
    with Stall(electorate.buses["a"], WorkPaused) as stall:
        Operator(electorate.beside, "c", root=electorate.root).pause()
        stall.await_reached()  # from here on the election thread notices nothing
        if end == "replace":
            a.session.replace("a test wants it")
        else:
            a.session.close(timeout_s=20)
        assert won(b).number == 2
    assert left == [0.0]
    assert term.reason is Reason.SESSION


# -- 11: ZooKeeper is away, and the leader goes on, for its calls wait in a queue ------------------
#        (patroni#1981, marathon#2509, rocksplicator#417)


def test_bug_11_answered_reads_do_not_keep_a_leader(electorate, proxy, kazoo_contender) -> None:
    a = electorate.candidate("a", address=proxy.address, timeout_s=4.0)
    term = leading(a)
    kazoo = kazoo_leading(kazoo_contender("kazoo", address=proxy.address))
    proxy.add_rule(HoldRepliesTo(is_multi))
    assert term.ending.wait(15)
    assert term.reason is Reason.LEASE
    with pytest.raises(Deposed):
        term.check()
    assert kazoo.client.exists(f"{kazoo.path}/{kazoo.lock.node}")  # as anybody may read
    assert kazoo.client.state == KazooState.CONNECTED


def test_bug_11_a_write_never_lands_after_its_term(electorate, proxy, kazoo_contender) -> None:
    a = electorate.candidate("a", address=proxy.address, timeout_s=4.0)
    term = leading(a)
    kazoo = kazoo_leading(kazoo_contender("kazoo", address=proxy.address))
    control = electorate.path("control")
    proxy.refuse()
    suspended(a.session)
    eventually(lambda: kazoo.client.state == KazooState.SUSPENDED)
    late = kazoo.client.set_async(kazoo.path, b"late")
    with pytest.raises(Deposed):
        term.write([SetData(control, b"late")])
    assert not late.ready()
    proxy.heal()
    late.get(timeout=30)  # kazoo's came through, long after it was asked for
    connected(a.session)
    assert electorate.beside.get(control)[0] != b"late"


# -- 12: stopping while suspended leaves the candidate's znode (kazoo#54) --------------------------


@pytest.mark.parametrize("how", ["withdraw", "close"])
def test_bug_12_a_candidate_stopped_while_suspended_leaves_no_znode(electorate, proxy, how) -> None:
    """kazoo 2.11 deletes the znode of a cancelled ``acquire`` as soon as it is connected again."""
    a = electorate.candidate("a", address=proxy.address)
    first, behind = electorate.candidate("first"), electorate.candidate("behind")
    term = leading(first)
    electorate.wait_in_line(a)
    electorate.wait_in_line(behind)
    proxy.refuse()
    suspended(a.session)
    if how == "withdraw":
        assert not a.withdraw(timeout_s=0.1)
    else:
        a.close(timeout_s=0.1)
    proxy.heal()
    connected(a.session)
    eventually(lambda: len(electorate.line()) == 2, timeout_s=10)
    first.conclude(term, Reason.WITHDRAWN)
    assert won(behind).number == 2


def test_bug_12_a_candidate_closed_while_suspended_stands_no_more(electorate, proxy) -> None:
    a, first = electorate.candidate("a", address=proxy.address), electorate.candidate("first")
    leading(first)
    electorate.wait_in_line(a)
    proxy.refuse()
    suspended(a.session)
    a.close(timeout_s=0.1)
    a.stand()  # while its release is under way
    proxy.heal()
    eventually(lambda: len(election_threads()) == 1)
    assert len(electorate.line()) == 1


def test_bug_12_a_session_closed_suspended_ends(electorate, fault_proxy, kazoo_contender) -> None:
    """Through whichever server answers, although its own connection is gone."""
    one, other = fault_proxy(electorate.address), fault_proxy(electorate.address)
    both = f"{one.address},{other.address}"
    a = electorate.candidate("a", address=both, timeout_s=LONG_S)
    leading(a)
    kazoo = kazoo_leading(kazoo_contender("kazoo", address=both, timeout_s=LONG_S))
    for each in (one, other):
        each.refuse()
    suspended(a.session)
    eventually(lambda: kazoo.client.state == KazooState.SUSPENDED)
    assert stop_within(kazoo.client, 15)
    other.heal()
    a.session.close(timeout_s=30)
    assert electorate.line() == {}
    assert kazoo_contender("beside").election.contenders() == ["kazoo"]  # until its session expires


# -- 13: a wake-up is missed, and nobody leads (kazoo#116, PR #170) --------------------------------


def test_bug_13_the_end_of_the_one_in_front_is_heard_at_once(electorate) -> None:
    a, b = electorate.candidate("a"), electorate.candidate("b", timeout_s=LONG_S)
    term = leading(a)
    electorate.wait_in_line(b)
    a.conclude(term, Reason.WITHDRAWN)
    assert won(b).number == 2  # within 30 s, and the timed look is after 60


def test_bug_13_the_one_in_front_ended_while_nobody_was_connected(electorate, proxy) -> None:
    """kazoo 2.11 looks again at each change of state."""
    a = electorate.candidate("a")
    b = electorate.candidate("b", address=proxy.address, timeout_s=LONG_S)
    term = leading(a)
    electorate.wait_in_line(b)
    proxy.refuse()
    suspended(b.session)
    a.conclude(term, Reason.WITHDRAWN, timeout_s=30)
    proxy.heal()
    assert won(b).number == 2


def test_bug_13_a_watch_that_never_fires_is_outwaited(electorate, proxy, kazoo_contender) -> None:
    a = electorate.candidate("a")
    b = electorate.candidate("b", address=proxy.address, timeout_s=3.0)
    term = leading(a)
    electorate.wait_in_line(b)
    kazoo, other = kazoo_contender("kazoo"), kazoo_contender("other", address=proxy.address)
    kazoo_leading(kazoo)
    kazoo_waiting(other)
    proxy.drop_replies(is_watch_event, cut=False)
    a.conclude(term, Reason.WITHDRAWN, timeout_s=30)
    eventually(lambda: proxy.dropped == 1)
    proxy.drop_replies(is_watch_event, cut=False)
    kazoo.let_go.set()
    eventually(lambda: proxy.dropped == 2)
    assert electorate.told(SessionChanged, "b") == []
    assert won(b).number == 2
    assert not other.leads.is_set()
    assert other.election.contenders() == ["other"]  # it is alone, and waits for ever
