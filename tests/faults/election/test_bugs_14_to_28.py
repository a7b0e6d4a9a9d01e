"""Bugs 14 to 28 of the list of 28 that elections on ZooKeeper are known to have, each by its name.

Each situation is recreated on a real server. Where kazoo's own ``Election`` or ``Lock`` has the
bug, it stands in the same situation as a control: so the situation is real. Bugs 22 and 23 are
Kafka's (``tests/integration/kafka``: ``test_kafka_faults.py``, ``consumer_contract.py``), bug 25
needs processes (``test_bug_25_in_processes.py``), bugs 27 and 28 need an ensemble
(``test_bugs_in_an_ensemble.py``).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest
from beliefs import Beliefs, is_believed
from reply_rules import AnswerFromThePast
from stall import Stall
from wire_requests import is_claim, is_create, is_survey

from leaderq import Deposed, LeaderCareer, Runner, Session, Term
from leaderq.clock import now_s
from leaderq.config import Settings
from leaderq.errors import LeaderqError
from leaderq.events import (
    CoolingOff,
    Event,
    EventBus,
    Standing,
    TermBegan,
    TermEnded,
    TermEnding,
    WorkPaused,
    WorkResumed,
)
from leaderq.term import Reason
from leaderq.testing import eventually
from leaderq.zookeeper import (
    Create,
    Credentials,
    Delete,
    SessionEnder,
    SessionState,
    end_session,
)


def heard(electorate, kind, candidate="a"):
    """The events of ``kind`` that ``candidate`` has published."""
    events = [event for event in electorate.events if isinstance(event, kind)]
    return [event for event in events if event.candidate == candidate]


def leads_alone(electorate, won, candidate):
    """Wait for the candidate's term, and see that its znode alone stands."""
    term = won(candidate)
    assert electorate.line() == {term.id: candidate.session.id}
    return term


def in_line(electorate, count):
    """Wait until so many candidates stand."""
    return eventually(lambda: len(electorate.line()) == count)


def expire(address, session):
    """End the session on the server behind its owner's back, and wait for the owner's next one."""
    before = session.credentials
    assert end_session(address, before)
    eventually(lambda: session.id not in (None, before.session_id))


def expire_kazoo(address, client):
    """The same for kazoo's."""
    before = client.client_id
    assert end_session(address, Credentials(*before))
    eventually(lambda: client.connected and client.client_id[0] != before[0])


@contextlib.contextmanager
def in_use(*requests: Callable[[], object]) -> Iterator[None]:
    """Make these requests every few milliseconds, as a busy leader does, and wait for no answer."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.005):
            for request in requests:
                with contextlib.suppress(LeaderqError):
                    request()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


# -- 14: a handler blocks the event thread ---------------------------------------------------------


def test_bug_14_a_listener_that_asks_zookeeper_hangs_nothing(electorate, proxy, won, kazoo_client):
    a = electorate.candidate("a", address=proxy.address)
    a.stand()
    term = won(a)
    refusals = []

    def ask(state):
        if state is SessionState.CONNECTED:
            with pytest.raises(RuntimeError, match="must not wait") as refused:
                a.session.exists("/")
            refusals.append(refused)

    a.session.add_listener(ask)
    kazoo = kazoo_client(address=proxy.address, timeout_s=2.0)
    kazoo.create(electorate.root + "-kazoo", ephemeral=True)
    unanswered = []

    def ask_with_kazoo(state):
        if state == "CONNECTED":
            unanswered.append(kazoo.exists_async("/"))
            with contextlib.suppress(KeyError):  # which ends the test's own wait, below
                unanswered[-1].get()

    kazoo.add_listener(ask_with_kazoo)
    proxy.cut()
    eventually(lambda: heard(electorate, WorkResumed))
    assert refusals
    term.check()
    # kazoo waits for an answer on the thread that reads answers: it cannot even keep its session.
    eventually(lambda: electorate.beside.exists(electorate.root + "-kazoo") is None)
    assert kazoo.state == "CONNECTED"
    assert not unanswered[0].ready()
    kazoo.remove_listener(ask_with_kazoo)
    unanswered[0].set_exception(KeyError("enough"))


def test_bug_14_a_listener_that_holds_the_thread_keeps_no_lost_term(electorate, proxy, won):
    a, b = electorate.candidate("a", address=proxy.address), electorate.candidate("b")
    a.stand()
    term = won(a)
    b.stand()
    in_line(electorate, 2)
    with Stall(electorate.buses["a"], WorkPaused) as stall:
        proxy.cut()
        stall.await_reached()
        eventually(lambda: a.session.state is SessionState.CONNECTED)
        a.session.replace("a test wants it")
        won(b)
        assert not is_believed(term)
        assert term.reason is Reason.SESSION


# -- 15: an elected leader believes that it follows ------------------------------------------------
# kazoo's Election makes no claim: its leader is who stands first, so it has no reply to lose.


def test_bug_15_an_elected_leader_whose_claims_reply_was_lost_knows_that_it_leads(
    electorate,
    proxy,
    won,
):
    a = electorate.candidate("a", address=proxy.address)
    proxy.drop_reply_to(is_claim)
    a.stand()
    term = won(a)
    assert proxy.dropped == 1
    term.check()
    record = electorate.record()
    assert (term.number, term.unclean) == (1, False)  # the term that was won, not one more
    assert (record["number"], record["id"], record["ended"]) == (1, term.id, None)


def test_bug_15_a_claim_lost_together_with_its_znode_is_not_led_on(electorate, proxy, won):
    def is_claims_reply(reply):
        if reply[16:20] != b"\0\0\0\x0d":  # the first result of a transaction: of a check
            return False
        (node,) = electorate.line()
        electorate.beside.delete(electorate.path("candidates", node))
        return True

    a = electorate.candidate("a", address=proxy.address)
    proxy.drop_replies(is_claims_reply)
    a.stand()
    term = won(a)
    assert proxy.dropped == 1
    assert (term.number, term.unclean) == (2, True)
    assert electorate.line() == {term.id: a.session.id}


# -- 16: a candidate that lost is of no use any more -----------------------------------------------


def lose_by_session(electorate, proxy, a, term):
    expire(electorate.address, a.session)


def lose_by_deletion(electorate, proxy, a, term):
    electorate.beside.delete(electorate.path("candidates", term.id))


def lose_by_lease(electorate, proxy, a, term):
    proxy.black_hole()


@pytest.mark.parametrize("lose", [lose_by_session, lose_by_deletion, lose_by_lease])
def test_bug_16_a_candidate_that_lost_its_term_stands_and_leads_again(electorate, proxy, won, lose):
    timeout_s = 3.0 if lose is lose_by_lease else 30.0
    a = electorate.candidate("a", address=proxy.address, timeout_s=timeout_s)
    b = electorate.candidate("b")
    a.stand()
    term = won(a)
    b.stand()
    in_line(electorate, 2)
    lose(electorate, proxy, a, term)
    assert term.ending.wait(30)
    successor = won(b)
    assert not is_believed(term)
    proxy.heal()
    a.conclude(term, Reason.WITHDRAWN)
    a.stand()
    in_line(electorate, 2)
    b.conclude(successor, Reason.WITHDRAWN)
    assert won(a).number == successor.number + 1


def test_bug_16_kazoos_lock_cannot_be_acquired_again_after_its_session(electorate, kazoo_contender):
    kazoo = kazoo_contender("a").stand()
    assert kazoo.leads.wait(30)
    expire_kazoo(electorate.address, kazoo.client)
    assert kazoo.election.contenders() == []
    assert not kazoo.lock.acquire(timeout=0.5)  # it holds, it believes, what nobody holds


# -- 17: losing leadership deletes what is shared --------------------------------------------------


def test_bug_17_a_losers_release_leaves_its_successors_record_alone(electorate, won):
    a, b = electorate.candidate("a"), electorate.candidate("b")
    a.stand()
    term = won(a)
    b.stand()
    in_line(electorate, 2)
    lose_by_deletion(electorate, None, a, term)
    successor = won(b)
    before = electorate.beside.get(electorate.path("term"))
    a.conclude(term, Reason.WITHDRAWN, timeout_s=30)
    assert heard(electorate, TermEnded)
    assert electorate.beside.get(electorate.path("term")) == before
    assert electorate.line() == {successor.id: b.session.id}
    successor.check()


def test_bug_17_a_losers_own_clean_up_is_refused(electorate, proxy, won, kazoo_contender):
    shared, of_kazoo = electorate.root + "-shared", electorate.root + "-kazoo"
    a = electorate.candidate("a", address=proxy.address, timeout_s=3.0)
    b = electorate.candidate("b")
    kazoo = kazoo_contender("a", address=proxy.address, timeout_s=3.0).stand()
    assert kazoo.leads.wait(30)
    kazoo_successor = kazoo_contender("b").stand()
    a.stand()
    term = won(a)
    b.stand()
    in_line(electorate, 2)
    proxy.black_hole()
    won(b).write([Create(shared, b"the successor's")])
    assert kazoo_successor.leads.wait(30)
    kazoo_successor.client.create(of_kazoo)
    proxy.heal()
    eventually(lambda: a.session.state is SessionState.CONNECTED)
    with pytest.raises(Deposed):
        term.write([Delete(shared)])
    assert electorate.beside.exists(shared)
    # The function that kazoo's leader runs was told nothing, and works on in a session of its own.
    eventually(lambda: kazoo.client.connected)
    assert kazoo.works
    kazoo.client.delete(of_kazoo)
    assert electorate.beside.exists(of_kazoo) is None


# -- 18: a flapping session restarts all work ------------------------------------------------------
# kazoo's Election revokes nothing, so it has no storms; how soon to run it again is its caller's.


def test_bug_18_short_losses_of_the_connection_keep_the_term(electorate, proxy, won):
    a = electorate.candidate("a", address=proxy.address)
    a.stand()
    term = won(a)
    for flap in range(1, 6):
        proxy.cut()
        eventually(lambda: len(heard(electorate, WorkResumed)) == flap)  # noqa: B023
    term.check()
    assert not heard(electorate, TermEnding)
    assert len(heard(electorate, TermBegan)) == len(heard(electorate, Standing)) == 1


class Idle(LeaderCareer):
    def execute(self, term: Term) -> None:
        term.wait(0.05)


@contextlib.contextmanager
def running(session: Session, settings: Settings, told: Callable[[Event], None]) -> Iterator[None]:
    """Run an idle career on ``session``."""
    bus = EventBus()
    bus.subscribe(Event, told)
    runner = Runner(Idle(), session, settings=settings, events=bus)
    thread = threading.Thread(target=runner.run)
    thread.start()
    try:
        yield
    finally:
        runner.stop()
        thread.join()


def test_bug_18_a_candidate_that_loses_session_after_session_cools_off(electorate):
    session = electorate.session()
    told: list[tuple[float, Event]] = []

    def times(kind: type[Event]) -> list[float]:
        return [at for at, event in told if isinstance(event, kind)]

    settings = Settings(career="c", root=electorate.root, cool_off_s=1.0)
    with running(session, settings, lambda event: told.append((now_s(), event))):
        for term in (1, 2):
            eventually(lambda: len(times(TermBegan)) == term)  # noqa: B023
            expire(electorate.address, session)
        eventually(lambda: len(times(TermBegan)) == 3)
        stood = times(Standing)
    pauses = [again - ended for ended, again in zip(times(TermEnded), stood[1:], strict=False)]
    assert len(pauses) == 2
    assert min(pauses) >= 0.5  # half of the cool-off: the rest is jitter
    assert len(times(CoolingOff)) == 2


# -- 19: the znode of a ghost, a session that its owner does not know ------------------------------


def test_bug_19_a_ghost_sessions_znode_is_neither_adopted_nor_waited_for(
    electorate,
    proxy,
    won,
    monkeypatch,
):
    # Whoever knows a ghost's password ends it; of a real one nobody does.
    monkeypatch.setattr(SessionEnder, "end", lambda *_, **__: False)
    leader = electorate.candidate("leader")
    a = electorate.candidate("a", address=proxy.address, timeout_s=60.0)
    leader.stand()
    term = won(leader)
    ghost = a.session.id
    a.session.create(electorate.root + "-ghost", ephemeral=True)
    proxy.drop_reply_to(is_create)
    a.stand()
    eventually(lambda: proxy.dropped == 1, interval_s=0.001)
    proxy.refuse()
    in_line(electorate, 2)
    a.session.replace("a test wants it")
    proxy.heal()
    eventually(lambda: a.session.id in electorate.line().values() and len(electorate.line()) == 2)
    leader.conclude(term, Reason.WITHDRAWN)
    leads_alone(electorate, won, a)
    # All that before the ghost was gone.
    assert electorate.beside.exists(electorate.root + "-ghost").ephemeral_owner == ghost


def test_bug_19_kazoos_election_leads_on_the_znode_of_a_ghost(electorate, proxy, kazoo_contender):
    leader = kazoo_contender("leader").stand()
    assert leader.leads.wait(30)
    kazoo = kazoo_contender("a", address=proxy.address, timeout_s=60.0).stand()
    eventually(lambda: len(leader.election.contenders()) == 2)
    ghost = kazoo.client.client_id[0]
    proxy.refuse()
    kazoo.client.stop()
    eventually(lambda: kazoo.outcome)
    proxy.heal()
    kazoo.client.start()
    kazoo.stand()
    leader.let_go.set()
    assert kazoo.leads.wait(30)
    node = electorate.beside.exists(f"{kazoo.path}/{kazoo.lock.node}")
    assert node.ephemeral_owner == ghost != kazoo.client.client_id[0]  # it vanishes with the ghost


# -- 20: two expiries in a row leave a candidate neither leading nor following ---------------------


@pytest.mark.parametrize("again", [False, True], ids=["together", "one after the other"])
def test_bug_20_a_leader_that_loses_two_sessions_in_a_row_is_demoted_once_and_leads_again(
    electorate, won, kazoo_contender, again
):
    a = electorate.candidate("a")
    kazoo = kazoo_contender("a").stand()
    assert kazoo.leads.wait(30)
    a.stand()
    term = won(a)
    with Stall(electorate.buses["a"], TermEnding) as stall:
        expire(electorate.address, a.session)
        stall.await_reached()
        if again:
            stall.go()
        expire(electorate.address, a.session)
    assert not is_believed(term)
    assert a.await_term(0.2) is None
    a.conclude(term, Reason.WITHDRAWN, timeout_s=30)
    assert [event.reason for event in heard(electorate, TermEnding)] == [Reason.SESSION]
    assert [event.reason for event in heard(electorate, TermEnded)] == [Reason.SESSION]
    a.stand()
    leads_alone(electorate, won, a)
    for _ in range(2):
        expire_kazoo(electorate.address, kazoo.client)
    # kazoo's leader is neither: it works on, while nobody stands, itself included.
    assert kazoo.works
    assert kazoo.lock.is_acquired
    assert kazoo.election.contenders() == []


def test_bug_20_a_leader_is_demoted_although_its_ghosts_znode_stands(electorate, proxy, won):
    """Two sessions are given up in a row, neither is ended: no watch and no renewal tells of it."""
    a = electorate.candidate("a", address=proxy.address, timeout_s=60.0)
    a.stand()
    term = won(a)
    proxy.refuse()
    for _ in range(2):
        a.session.replace("a test wants it")
    assert not is_believed(term)
    eventually(lambda: heard(electorate, TermEnding))
    assert term.id in electorate.line()
    proxy.heal()
    a.conclude(term, Reason.WITHDRAWN, timeout_s=30)
    a.stand()
    leads_alone(electorate, won, a)


def test_bug_20_a_waiting_candidate_that_loses_two_sessions_in_a_row_stands_once(electorate, won):
    a, b = electorate.candidate("a"), electorate.candidate("b")
    a.stand()
    term = won(a)
    b.stand()
    in_line(electorate, 2)
    for _ in range(2):
        expire(electorate.address, b.session)
    eventually(lambda: sorted(electorate.line().values()) == sorted([a.session.id, b.session.id]))
    a.conclude(term, Reason.WITHDRAWN)
    leads_alone(electorate, won, b)


# -- 21: a stale version is tried again for ever ---------------------------------------------------
# kazoo's Election compares no versions.


@pytest.mark.parametrize(
    ("znode", "content", "number"),
    [("term", b'{"number": %d}', 44), ("control", b'{"floor": %d}', 43)],
    ids=["by a record", "by a wish"],
)
def test_bug_21_a_claim_that_was_overtaken_is_made_again(
    electorate,
    proxy,
    won,
    znode,
    content,
    number,
):
    overtaken = []

    def overtake(request):
        if is_claim(request) and len(overtaken) < 3:
            overtaken.append(41 + len(overtaken))
            electorate.beside.set(electorate.path(znode), content % overtaken[-1])
        return False  # its reply is not lost

    a = electorate.candidate("a", address=proxy.address)
    proxy.drop_reply_to(overtake)
    a.stand()
    assert won(a).number == number
    assert overtaken == [41, 42, 43]


def test_bug_21_a_claim_on_what_a_lagging_server_has_read_is_made_again(electorate, proxy, won):
    claims, surveys = [], []

    def overtake(request):
        if is_claim(request):
            claims.append(request)
            if len(claims) < 3:
                record = b'{"number": %d}' % (40 + len(claims))
                electorate.beside.set(electorate.path("term"), record)
        return False

    def is_a_later_survey(request):
        if is_survey(request):
            surveys.append(request)
        return is_survey(request) and len(surveys) > 1  # the first does not know its own znode

    a = electorate.candidate("a", address=proxy.address)
    proxy.drop_reply_to(overtake)
    proxy.add_rule(AnswerFromThePast(is_a_later_survey))
    a.stand()
    assert won(a).number == 43
    assert len(claims) == 4  # two overtaken, one on the record as of before the second of these


# -- 24: stop() drops the request that ends the session --------------------------------------------


def close_busy(session, proxy):
    for _ in range(500):
        session.set_async("/", b"x" * 1000)
    session.close()


def close_while_reconnecting(session, proxy):
    proxy.cut()
    session.close()


def close_while_suspended(session, proxy):
    proxy.cut()
    eventually(lambda: session.state is SessionState.SUSPENDED, interval_s=0.001)
    session.close()


@pytest.mark.parametrize("close", [close_busy, close_while_reconnecting, close_while_suspended])
def test_bug_24_a_leaders_znode_goes_with_the_close_of_its_session(electorate, proxy, won, close):
    a = electorate.candidate("a", address=proxy.address, timeout_s=60.0)
    b = electorate.candidate("b")
    a.stand()
    term = won(a)
    b.stand()
    in_line(electorate, 2)
    close(a.session, proxy)
    assert won(b).unclean  # long before the time-out of 60 s
    assert not is_believed(term)


def test_bug_24_kazoos_stop_drops_the_close(electorate, proxy, kazoo_client):
    left = electorate.root + "-left"
    kazoo = kazoo_client(address=proxy.address, timeout_s=60.0)
    kazoo.create(left, ephemeral=True)
    proxy.cut()
    kazoo.stop()
    assert kazoo.state == "LOST"  # over, says kazoo
    assert electorate.beside.exists(left)


# -- 26: a busy connection hides that nobody answers -----------------------------------------------


def test_bug_26_a_busy_connection_is_found_dead(electorate, proxy, won, kazoo_contender):
    a = electorate.candidate("a", address=proxy.address, timeout_s=3.0)
    b = electorate.candidate("b")
    c = electorate.candidate("c", address=proxy.address, timeout_s=3.0)
    kazoo = kazoo_contender("a", address=proxy.address, timeout_s=3.0).stand()
    assert kazoo.leads.wait(30)
    kazoo_successor = kazoo_contender("b").stand()
    for number, candidate in enumerate((a, b, c), start=1):
        candidate.stand()
        in_line(electorate, number)
    busy = [lambda one=one: one.exists_async("/") for one in (a.session, c.session, kazoo.client)]
    with Beliefs() as beliefs, in_use(*busy):
        beliefs.add(won(a))
        proxy.black_hole()
        # The leader drops a silent connection when its lease ends; nobody does so for who waits.
        eventually(lambda: c.session.state is SessionState.SUSPENDED)
        beliefs.add(won(b))
        assert kazoo_successor.leads.wait(30)
        assert kazoo.works
        assert kazoo.client.state == "CONNECTED"
    assert not beliefs.overlaps
