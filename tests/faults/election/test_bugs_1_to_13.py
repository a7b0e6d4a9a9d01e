"""Bugs 1 to 13 of the 28 that leader elections have had, recreated on a real server.

Each test names its bug, with where it was met. Where kazoo's own ``Election`` or ``Lock`` has the
bug, it stands in the same situation and is seen to fail: so the situation is real. The numbers are
those of the list in ``docs/design/facts.md``.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from electorate import Electorate
from kazoo.client import KazooState
from kazoo.exceptions import AuthFailedError, LockTimeout, NoNodeError
from kazoo_contender import KazooContender, started, stop_within
from stall import Stall
from wire_requests import (
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


def waiting(candidate: Candidate) -> None:
    eventually(lambda: candidate.role is Role.WAITING)


def standing_behind(contender: KazooContender, count: int) -> None:
    """``contender`` stands, so that ``count`` are in kazoo's line."""
    contender.stand()
    eventually(lambda: len(contender.client.get_children(contender.path)) == count)


def connected(session: Session, *, not_as: int | None = None) -> None:
    """Return when ``session`` is connected, and is another session than ``not_as``."""
    eventually(lambda: session.state is SessionState.CONNECTED and session.id not in (None, not_as))


def replace_beside_its_znodes(session: Session, proxy: FaultProxy) -> int:
    """Let ``session`` begin again while its servers keep the old one; returns the old id."""
    old = session.id
    assert old is not None
    proxy.refuse()
    session.replace("a test wants it")
    proxy.heal()
    connected(session, not_as=old)
    return old


def asked(proxy: FaultProxy, request: Callable[[bytes], bool]) -> threading.Event:
    """Set as soon as such a request has come to the proxy."""
    seen = threading.Event()
    proxy.hold_replies_to(lambda body: request(body) and bool(seen.set()))  # holds none
    return seen


def election_threads() -> set[threading.Thread]:
    """Those of all candidates in this process."""
    return {thread for thread in threading.enumerate() if "candidate" in thread.name}


def at_each_beginning(electorate: Any, candidate: Candidate, look: Callable[[], Any]) -> list[Any]:
    """What ``look`` returns on the thread of ``candidate`` at the moment that each of its terms begins."""
    seen: list[Any] = []
    electorate.buses[candidate.id].subscribe(TermBegan, lambda event: seen.append(look()))
    return seen


def told(electorate: Any, kind: type, id: str) -> list[Any]:
    """The events of class ``kind`` that candidate ``id`` has published."""
    return [event for event in electorate.events if isinstance(event, kind) and event.candidate == id]


# -- 1: a new session adopts the old session's znode, and two lead (CURATOR-696, druid#16411) -----------------------


def test_bug_01_a_new_session_never_adopts_the_old_sessions_znode(electorate, proxy, won) -> None:
    a, b = electorate.candidate("a", address=proxy.address), electorate.candidate("b")
    b.stand()
    term = won(b)
    a.stand()
    waiting(a)
    old = a.session.id
    proxy.refuse()
    a.session.replace("a test wants it")
    assert old in electorate.line().values()  # it could not be ended, and its znode stands
    proxy.heal()
    connected(a.session, not_as=old)
    b.conclude(term, Reason.WITHDRAWN)
    assert electorate.line()[won(a).id] == a.session.id


def test_control_01_kazoo_leads_with_the_old_sessions_znode_until_another_leads_as_well(
    proxy, kazoo_client, kazoo_contender
) -> None:
    client = kazoo_client(proxy.address, timeout_s=6.0)
    holder = kazoo_contender("holder").stand()
    assert holder.leads.wait(30)
    adopter = kazoo_contender("adopter", client)
    standing_behind(adopter, 2)
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
    other = kazoo_contender("other").stand()
    assert other.leads.wait(30)
    assert (adopter.works, adopter.lock.is_acquired) == (True, True)  # two lead


# -- 2: handlers of reconnections interleave, and one deletes what the other leads with (CURATOR-620, -644, -653) ---


def test_bug_02_reconnections_in_a_row_take_nothing_from_a_leader(electorate, proxy, won) -> None:
    """kazoo's recipes do nothing at a reconnection, so they do not have this bug."""
    a = electorate.candidate("a", address=proxy.address, timeout_s=LONG_S)

    def reconnect(times: int) -> None:
        for _ in range(times):
            heard = len(told(electorate, SessionChanged, "a"))
            proxy.cut()
            eventually(lambda: len(told(electorate, SessionChanged, "a")) >= heard + 2)  # noqa: B023
            connected(a.session)

    with Stall(electorate.buses["a"], Standing) as stall:
        a.stand()
        stall.await_reached()
        reconnect(3)  # all of them are heard between the look at the line and the claim, and after it
    term = won(a)
    reconnect(3)
    a.announce(term, Stage.EXECUTION)  # comes after all that was heard
    eventually(lambda: electorate.record()["stage"] == "execution")
    term.check()
    assert electorate.line() == {term.id: a.session.id}
    assert len(told(electorate, TermBegan, "a")) == 1
    assert told(electorate, TermEnding, "a") == []


# -- 3: the leader's znode is deleted, and it never notices (CURATOR-171) ---------------------------------------


def test_bug_03_a_leader_hears_at_once_that_its_znode_was_deleted(
    electorate, proxy, won, kazoo_client, kazoo_contender
) -> None:
    a, b = electorate.candidate("a", address=proxy.address), electorate.candidate("b")
    a.stand()
    term = won(a)
    b.stand()
    waiting(b)
    a.announce(term, Stage.EXECUTION)  # once this is done, so is all that the beginning of the term asked for
    eventually(lambda: electorate.record()["stage"] == "execution")
    proxy.hold_replies_to(is_renewal)  # only the watch can tell
    electorate.beside.delete(electorate.path("candidates", term.id))
    assert term.ending.wait(15)
    assert term.reason is Reason.NODE_DELETED
    with pytest.raises(Deposed):
        term.check()
    assert won(b).number == 2

    kazoo = kazoo_contender("kazoo").stand()
    assert kazoo.leads.wait(30)
    kazoo_client().delete(f"{kazoo.path}/{kazoo.lock.node}")
    other = kazoo_contender("other").stand()
    assert other.leads.wait(30)
    assert (kazoo.works, kazoo.lock.is_acquired) == (True, True)  # two lead


# -- 4: the folder of the line vanishes, and nobody ever leads again (CURATOR-724, fluss#4382) ----------------------


def test_bug_04_the_folder_of_the_line_vanished_between_two_terms(electorate, won, kazoo_client, kazoo_contender) -> None:
    a = electorate.candidate("a")
    a.stand()
    a.conclude(won(a), Reason.WITHDRAWN, timeout_s=30)
    electorate.beside.delete(electorate.path("candidates"))
    a.stand()
    assert won(a).number == 2

    kazoo = kazoo_contender("kazoo")
    kazoo.let_go.set()
    kazoo.stand()
    eventually(lambda: kazoo.outcome == "returned")
    kazoo_client().delete(kazoo.path)
    for _ in range(2):
        kazoo.stand()
        eventually(lambda: isinstance(kazoo.outcome, NoNodeError))


def test_bug_04_the_folder_of_the_line_vanished_under_those_in_it(electorate, won, kazoo_client, kazoo_contender) -> None:
    a, b = electorate.candidate("a"), electorate.candidate("b")
    a.stand()
    term = won(a)
    b.stand()
    waiting(b)
    folder = electorate.path("candidates")
    electorate.beside.multi([*(Delete(f"{folder}/{name}") for name in electorate.line()), Delete(folder)])
    assert term.ending.wait(30)
    assert won(b).number == 2
    a.conclude(term, Reason.WITHDRAWN)
    a.stand()
    waiting(a)

    kazoo, other = kazoo_contender("kazoo").stand(), kazoo_contender("other")
    assert kazoo.leads.wait(30)
    standing_behind(other, 2)
    vanish = other.client.transaction()
    for name in other.client.get_children(other.path):
        vanish.delete(f"{other.path}/{name}")
    vanish.delete(other.path)
    assert vanish.commit() == [True] * 3
    eventually(lambda: isinstance(other.outcome, NoNodeError))
    assert kazoo.works  # it leads with nothing


# -- 5: close() races a watch, and the znode is made again after it (CURATOR-3) -----------------------------------


def test_bug_05_a_watch_that_fires_after_close_makes_no_znode(electorate, proxy, won) -> None:
    """kazoo's watches make no znodes, so its recipes do not have this bug."""
    a, b = electorate.candidate("a", address=proxy.address), electorate.candidate("b")
    b.stand()
    term = won(b)
    a.stand()
    waiting(a)
    proxy.freeze_direction("to_client")
    closing = threading.Thread(target=lambda: a.close(timeout_s=30))
    closing.start()
    eventually(lambda: a.role is Role.RELEASING)
    b.conclude(term, Reason.WITHDRAWN, timeout_s=30)  # the watch event waits before the answer to the leaving
    proxy.heal()
    closing.join(40)
    b.close(timeout_s=30)
    eventually(lambda: not election_threads())
    assert electorate.line() == {}


def test_bug_05_a_candidate_closed_while_it_makes_its_znode_again_leaves_none(electorate, won) -> None:
    a, b = electorate.candidate("a"), electorate.candidate("b")
    b.stand()
    term = won(b)
    a.stand()
    waiting(a)
    with Stall(electorate.buses["a"], Standing) as stall:
        for name in electorate.line():
            if name != term.id:
                electorate.beside.delete(electorate.path("candidates", name))
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


# -- 6: acquiring is interrupted, and a znode stays that blocks the line (CURATOR-62, -202, -205, kazoo#732) -------


def test_bug_06_a_znode_made_twice_is_deleted_once_that_is_seen(
    electorate, proxy, won, kazoo_contender, kazoo_client
) -> None:
    """The reply to the creation is lost, and the server that is asked next does not show the znode yet."""
    a, b = electorate.candidate("a", address=proxy.address), electorate.candidate("b")
    proxy.answer_from_the_past(is_listing)
    proxy.drop_reply_to(is_create)
    a.stand()
    term = won(a)
    assert proxy.dropped == 1
    eventually(lambda: electorate.line() == {term.id: a.session.id})
    b.stand()
    waiting(b)
    a.conclude(term, Reason.WITHDRAWN)  # and does not stand again, which would sweep what it left
    assert won(b).number == 2

    kazoo, beside = kazoo_contender("kazoo", address=proxy.address), kazoo_client()
    proxy.answer_from_the_past(is_listing)
    proxy.drop_reply_to(is_create)
    assert kazoo.election.contenders() == []
    kazoo.stand()
    eventually(lambda: len(beside.get_children(kazoo.path)) == 2)
    assert not kazoo.leads.wait(1.0)  # it waits behind itself
    assert kazoo.election.contenders() == ["kazoo", "kazoo"]


def test_bug_06_a_znode_whose_deletion_was_lost_is_deleted_all_the_same(
    electorate, proxy, won, kazoo_contender, kazoo_client
) -> None:
    holder, kazoo_holder = electorate.candidate("holder"), kazoo_contender("holder").stand()
    holder.stand()
    term = won(holder)
    a, behind = electorate.candidate("a", address=proxy.address), electorate.candidate("behind")
    a.stand()
    waiting(a)
    behind.stand()
    waiting(behind)
    assert kazoo_holder.leads.wait(30)
    client = kazoo_client(proxy.address)
    lock, raised = client.Lock(kazoo_holder.path, "kazoo"), []

    def acquire() -> None:
        try:
            lock.acquire(timeout=1.0)
        except LockTimeout as exc:
            raised.append(exc)

    acquiring = threading.Thread(target=acquire)
    acquiring.start()
    eventually(lambda: len(lock.contenders()) == 2)
    proxy.freeze_direction("to_server")
    gave_up = asked(proxy, is_delete)
    assert not a.withdraw(timeout_s=0.1)
    assert gave_up.wait(30)
    proxy.cut()  # what they asked for is lost with the connection
    proxy.heal()
    acquiring.join(30)
    assert a.withdraw(timeout_s=30)
    assert len(electorate.line()) == 2
    holder.conclude(term, Reason.WITHDRAWN)
    assert won(behind).number == 2

    assert len(raised) == 1
    kazoo_holder.let_go.set()
    other = kazoo_contender("other")
    standing_behind(other, 2)
    assert other.election.contenders() == ["kazoo", "other"]
    assert not other.leads.wait(1.0)  # it waits behind one that has given up, as long as that one's session lives


def test_bug_06_a_claim_whose_answer_was_lost_wins_one_term_and_not_two(electorate, proxy, won) -> None:
    a = electorate.candidate("a", address=proxy.address)
    proxy.drop_reply_to(is_claim)
    a.stand()
    term = won(a)
    assert proxy.dropped == 1
    assert (term.number, term.unclean) == (1, False)
    assert electorate.record()["id"] == term.id
    term.write([SetData(electorate.path("control"), b"")])


# -- 7: a second interrupt breaks the next standing; an error kills the election thread (CURATOR-15, -104, -518) -----


def test_bug_07_a_term_interrupted_many_times_ends_once_and_the_candidate_stands_again(
    electorate, won, kazoo_contender
) -> None:
    a = electorate.candidate("a")
    for number in (1, 2):
        a.stand()
        term = won(a)
        assert term.number == number
        for reason in (Reason.STEP_DOWN, Reason.HEALTH, Reason.TRANSFER):
            a.step_down(reason)
        assert not a.withdraw(timeout_s=0.1)
        assert a.conclude(term, Reason.WITHDRAWN, timeout_s=30)
        a.step_down(Reason.STEP_DOWN)
        assert a.withdraw(timeout_s=30)
    assert [event.reason for event in told(electorate, TermEnding, "a")] == [Reason.STEP_DOWN] * 2

    kazoo = kazoo_contender("kazoo").stand()
    assert kazoo.leads.wait(30)
    for _ in range(2):
        kazoo.election.cancel()
    kazoo.let_go.set()
    eventually(lambda: kazoo.outcome == "returned")
    kazoo.leads.clear()
    kazoo.stand()
    eventually(lambda: kazoo.outcome == "returned")
    assert not kazoo.leads.is_set()  # it is alone, and was not let in


def test_bug_07_an_error_in_the_election_thread_does_not_block_the_line(electorate, won, kazoo_contender) -> None:
    a, b, c = (electorate.candidate(id) for id in "abc")
    a.stand()
    term = won(a)
    before = election_threads()
    b.stand()
    waiting(b)
    (thread,) = election_threads() - before
    c.stand()
    waiting(c)
    raise_in(thread)
    b.step_down(Reason.WITHDRAWN)  # means nothing to one that waits, but wakes it
    a.conclude(term, Reason.WITHDRAWN)
    eventually(lambda: electorate.record()["number"] == 2)  # of b, had it survived, or of c

    first, killed, last = (kazoo_contender(id) for id in ("first", "killed", "last"))
    first.stand()
    assert first.leads.wait(30)
    standing_behind(killed, 2)
    standing_behind(last, 3)
    raise_in(killed.thread)
    first.let_go.set()
    eventually(lambda: isinstance(killed.outcome, MemoryError))
    assert not last.leads.wait(1.0)


def raise_in(thread: threading.Thread) -> None:
    """Let ``thread`` run out of memory at its next step in Python."""
    ident = ctypes.c_ulong(thread.ident or 0)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(MemoryError))


def test_bug_07_a_session_that_is_closed_ends_the_term_and_breaks_nothing(electorate, won, caplog) -> None:
    a = electorate.candidate("a")
    a.stand()
    term = won(a)
    a.session.close()
    assert term.reason is Reason.SESSION
    a.conclude(term, Reason.WITHDRAWN, timeout_s=30)
    assert a.withdraw(timeout_s=30)
    assert a.await_term(0) is None
    assert "broke down" not in caplog.text


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


def test_bug_07_a_refused_login_ends_no_election_thread(guarded, znode_root, won, request) -> None:
    right, wrong = "wonderland", "looking-glass"
    electorate = Electorate(guarded(right).address, znode_root)
    request.addfinalizer(electorate.close)
    login = Security(user="alice", password=right, mechanism="DIGEST-MD5")
    a, b = (electorate.candidate(id, security=login, timeout_s=6.0) for id in "ab")
    sasl = {"mechanism": "DIGEST-MD5", "username": "alice", "password": right}
    client = started(electorate.address, timeout_s=6.0, sasl_options=sasl)
    request.addfinalizer(lambda: stop_within(client, 15))
    kazoo = KazooContender(client, "/kazoo", "kazoo")
    a.stand()
    term = won(a)
    b.stand()
    waiting(b)
    guarded(wrong)
    for candidate in (a, b):
        eventually(lambda: "lost" in {one.state for one in told(electorate, SessionChanged, candidate.id)})  # noqa: B023
    guarded(right)
    a.conclude(term, Reason.WITHDRAWN, timeout_s=30)
    assert won(b).number == 2

    kazoo.stand()
    eventually(lambda: isinstance(kazoo.outcome, AuthFailedError))  # for good


# -- 8: a suspended leader is tolerated for T after it was late already (CURATOR-460) -----------------------------


def test_bug_08_a_leader_that_is_cut_off_has_ended_its_term_when_the_next_begins(
    electorate, proxy, won, kazoo_contender
) -> None:
    a = electorate.candidate("a", address=proxy.address, timeout_s=4.0)
    b = electorate.candidate("b", timeout_s=LONG_S)
    kazoo = kazoo_contender("kazoo", address=proxy.address, timeout_s=4.0).stand()
    a.stand()
    term = won(a)
    b.stand()
    waiting(b)
    left = at_each_beginning(electorate, b, term.remaining_s)
    other = kazoo_contender("other")
    assert kazoo.leads.wait(30)
    standing_behind(other, 2)
    proxy.black_hole()
    assert won(b).number == 2
    assert left == [0.0]
    assert told(electorate, WorkPaused, "a")  # before its lease was over
    assert other.leads.wait(30)
    assert (kazoo.works, kazoo.lock.is_acquired) == (True, True)  # two lead
    assert kazoo.client.state == KazooState.SUSPENDED  # of which kazoo says that nothing is lost yet


# -- 9: the lease is not looked at again after the wait (Jepsen on etcd 3.4.3) ------------------------------------


def test_bug_09_a_session_replaced_between_the_look_and_the_claim_wins_nothing_with_its_znode(electorate, proxy) -> None:
    """For kazoo, which looks at neither again, see the control of bug 1."""
    a = electorate.candidate("a", address=proxy.address)

    def leads_with_its_own() -> bool:
        return electorate.line().get(electorate.record()["id"]) == a.session.id

    looks = at_each_beginning(electorate, a, leads_with_its_own)
    electorate.line()  # from here on the session beside is there
    with Stall(electorate.buses["a"], Standing) as stall:
        a.stand()
        stall.await_reached()
        replace_beside_its_znodes(a.session, proxy)
    eventually(lambda: looks)
    assert looks[0]


def test_bug_09_a_lease_runs_from_when_the_claim_was_sent_and_not_from_its_answer(electorate, proxy, won) -> None:
    a = electorate.candidate("a", address=proxy.address, timeout_s=LONG_S)
    electorate.line()  # from here on the session beside is there
    proxy.hold_replies_to(is_claim)
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
def rude_runner(electorate: Electorate, proxy: FaultProxy) -> Iterator[Rude]:
    """A career that is run, from ``start()`` on, as candidate ``a`` behind the proxy, with T = 3 s."""
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


def test_bug_09_no_unit_begins_after_the_lease_although_the_election_thread_stands_still(electorate, rude_runner) -> None:
    career = rude_runner
    with Stall(electorate.buses["a"], WorkResumed) as stall:
        career.start()
        eventually(lambda: career.units)
        operator = Operator(electorate.beside, "c", root=electorate.root)
        operator.pause()
        eventually(lambda: told(electorate, WorkPaused, "a"))
        operator.resume()
        stall.await_reached()
        eventually(lambda: career.units[-1] == 0.0 or career.handed_over.is_set())
        begun = len(career.units)
        eventually(lambda: career.handed_over.is_set() or len(career.units) > begun + 5)
    # One may have passed the last look at the clock in time, and have begun just after.
    assert sum(left == 0.0 for left in career.units) <= 1


def test_bug_09_nobody_is_inaugurated_into_a_term_that_is_over(electorate, proxy, rude_runner) -> None:
    """What precedes ``inaugurate`` in leaderq's own careers may take longer than the lease lasts."""
    career = rude_runner
    career.is_slow = True
    career.start()
    assert career.began.wait(30)
    proxy.black_hole()
    assert career.handed_over.wait(30)
    assert career.inaugurated == []
    assert career.units == []


# -- 10: the leader's work is not stopped, because the release blocks (paasta#2450) ------------------------------


def test_bug_10_a_term_given_back_is_over_before_the_answer_comes(electorate, proxy, won, kazoo_contender) -> None:
    a, b = electorate.candidate("a", address=proxy.address), electorate.candidate("b")
    a.stand()
    term = won(a)
    b.stand()
    waiting(b)
    left = at_each_beginning(electorate, b, term.remaining_s)
    kazoo, other = kazoo_contender("kazoo", address=proxy.address).stand(), kazoo_contender("other")
    assert kazoo.leads.wait(30)
    standing_behind(other, 2)
    proxy.hold_replies_to(lambda request: is_release(request) or is_delete(request))
    assert not a.conclude(term, Reason.WITHDRAWN, timeout_s=0.1)
    assert won(b).number == 2
    assert left == [0.0]

    kazoo.let_go.set()
    assert other.leads.wait(30)
    assert (kazoo.outcome, kazoo.lock.is_acquired) == (None, True)  # it blocks, and believes


@pytest.mark.parametrize("end", ["replace", "close"])
def test_bug_10_a_session_is_not_ended_before_its_term_although_the_election_thread_stands_still(
    electorate, won, end
) -> None:
    a, b = electorate.candidate("a"), electorate.candidate("b")
    a.stand()
    term = won(a)
    b.stand()
    waiting(b)
    left = at_each_beginning(electorate, b, term.remaining_s)
    with Stall(electorate.buses["a"], WorkPaused) as stall:
        Operator(electorate.beside, "c", root=electorate.root).pause()
        stall.await_reached()
        if end == "replace":
            a.session.replace("a test wants it")
        else:
            a.session.close(timeout_s=20)
        assert won(b).number == 2
    assert left == [0.0]
    assert term.reason is Reason.SESSION


# -- 11: ZooKeeper is away, and the leader goes on as its calls wait in a queue (patroni#1981, marathon#2509) -----


def test_bug_11_a_leader_whose_writes_are_not_acknowledged_ends_its_term_although_reads_are_answered(
    electorate, proxy, won, kazoo_contender
) -> None:
    a = electorate.candidate("a", address=proxy.address, timeout_s=4.0)
    kazoo = kazoo_contender("kazoo", address=proxy.address, timeout_s=4.0).stand()
    a.stand()
    term = won(a)
    assert kazoo.leads.wait(30)
    proxy.hold_replies_to(is_multi)
    assert term.ending.wait(15)
    assert term.reason is Reason.LEASE
    with pytest.raises(Deposed):
        term.check()
    assert kazoo.client.exists(f"{kazoo.path}/{kazoo.lock.node}")
    assert (kazoo.works, kazoo.client.state) == (True, KazooState.CONNECTED)


def test_bug_11_a_leaders_write_does_not_wait_for_zookeeper_and_land_after_its_term(
    electorate, proxy, won, kazoo_contender
) -> None:
    a = electorate.candidate("a", address=proxy.address, timeout_s=4.0)
    kazoo = kazoo_contender("kazoo", address=proxy.address).stand()
    a.stand()
    term = won(a)
    assert kazoo.leads.wait(30)
    control = electorate.path("control")
    proxy.refuse()
    eventually(lambda: a.session.state is not SessionState.CONNECTED)
    eventually(lambda: kazoo.client.state == KazooState.SUSPENDED)
    late = kazoo.client.set_async(kazoo.path, b"late")
    with pytest.raises(Deposed):
        term.write([SetData(control, b"late")])
    assert not late.ready()
    proxy.heal()
    late.get(timeout=30)  # kazoo's came through, long after it was asked for
    connected(a.session)
    assert electorate.beside.get(control)[0] != b"late"


# -- 12: stopping while the session is suspended leaves the candidate's znode (kazoo#54) --------------------------


@pytest.mark.parametrize("how", ["withdraw", "close"])
def test_bug_12_a_candidate_stopped_while_suspended_leaves_no_znode(electorate, proxy, won, how) -> None:
    """kazoo 2.11 deletes the znode of a cancelled ``acquire`` when it is connected again."""
    a, b, c = electorate.candidate("a", address=proxy.address), electorate.candidate("b"), electorate.candidate("c")
    b.stand()
    term = won(b)
    for candidate in (a, c):
        candidate.stand()
        waiting(candidate)
    proxy.refuse()
    eventually(lambda: a.session.state is not SessionState.CONNECTED)
    if how == "withdraw":
        assert not a.withdraw(timeout_s=0.1)
    else:
        a.close(timeout_s=0.1)
    proxy.heal()
    connected(a.session)
    eventually(lambda: len(electorate.line()) == 2, timeout_s=10)
    b.conclude(term, Reason.WITHDRAWN)
    assert won(c).number == 2


def test_bug_12_a_session_closed_while_suspended_is_ended_as_soon_as_a_server_answers(
    electorate, proxy, won, kazoo_client, kazoo_contender
) -> None:
    a = electorate.candidate("a", address=proxy.address, timeout_s=LONG_S)
    kazoo = kazoo_contender("kazoo", address=proxy.address, timeout_s=LONG_S).stand()
    a.stand()
    won(a)
    assert kazoo.leads.wait(30)
    proxy.refuse()
    eventually(lambda: a.session.state is not SessionState.CONNECTED)
    eventually(lambda: kazoo.client.state == KazooState.SUSPENDED)
    assert stop_within(kazoo.client, 15)
    closing = threading.Thread(target=lambda: a.session.close(timeout_s=30))
    closing.start()
    eventually(lambda: a.session.state is SessionState.CLOSED)
    proxy.heal()
    closing.join(40)
    assert electorate.line() == {}
    assert kazoo_client().exists(f"{kazoo.path}/{kazoo.lock.node}")  # until its session expires


# -- 13: a wake-up is missed, and nobody leads (kazoo#116, PR #170) -----------------------------------------------


def test_bug_13_the_end_of_the_one_in_front_is_heard_at_once(electorate, won) -> None:
    a, b = electorate.candidate("a"), electorate.candidate("b", timeout_s=LONG_S)
    a.stand()
    term = won(a)
    b.stand()
    waiting(b)
    a.conclude(term, Reason.WITHDRAWN)
    assert won(b).number == 2  # within 30 s, and the timed look is after 60


def test_bug_13_the_one_in_front_ended_while_the_connection_was_away(electorate, proxy, won, kazoo_contender) -> None:
    """kazoo 2.11 looks again at each change of state."""
    a, b = electorate.candidate("a"), electorate.candidate("b", address=proxy.address, timeout_s=LONG_S)
    a.stand()
    term = won(a)
    b.stand()
    waiting(b)
    proxy.refuse()
    eventually(lambda: b.session.state is not SessionState.CONNECTED)
    a.conclude(term, Reason.WITHDRAWN, timeout_s=30)
    proxy.heal()
    assert won(b).number == 2


def test_bug_13_a_watch_that_never_fires_delays_the_next_term_by_the_time_out_and_no_longer(
    electorate, proxy, won, kazoo_contender
) -> None:
    a, b = electorate.candidate("a"), electorate.candidate("b", address=proxy.address, timeout_s=3.0)
    a.stand()
    term = won(a)
    b.stand()
    waiting(b)
    proxy.drop_replies(is_watch_event, cut=False)
    a.conclude(term, Reason.WITHDRAWN, timeout_s=30)
    eventually(lambda: proxy.dropped == 1)
    assert proxy.connections == 1
    kazoo, other = kazoo_contender("kazoo").stand(), kazoo_contender("other", address=proxy.address)
    assert kazoo.leads.wait(30)
    standing_behind(other, 2)
    proxy.drop_replies(is_watch_event, cut=False)
    kazoo.let_go.set()
    eventually(lambda: proxy.dropped == 2)
    assert won(b).number == 2
    assert not other.leads.is_set()
    assert other.election.contenders() == ["other"]
