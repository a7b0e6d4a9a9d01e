"""Leadership in a ``with`` block and in a loop, in somebody's own program, on a real ZooKeeper."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest
from kazoo.client import KazooClient

from leaderq import Deposed, Observer
from leaderq.election import Operator
from leaderq.errors import ConfigurationError, NotElected, SessionClosed, WouldDeadlock
from leaderq.term import Reason
from leaderq.testing import eventually
from leaderq.zookeeper import as_session

WAIT_S = 60.0


@pytest.fixture
def session(opened):
    """Of a time-out that is longer than anything here may be without a processor."""
    return opened(timeout_s=30.0)


@pytest.fixture
def seen(opened):
    """The career ``c`` as an operator sees it."""
    return Operator(opened(), "c")


def led_by_another(opened) -> str:
    """Whether the next one leads at once: with a session of its own, far from its time-out."""
    with opened(timeout_s=30.0).leadership("c", id="next", timeout_s=WAIT_S) as term:
        return term.candidate


def test_the_body_leads_and_operators_see_it(session, seen, caplog):
    with (
        caplog.at_level(logging.INFO, "leaderq.events"),
        session.leadership("c", id="a", timeout_s=WAIT_S) as term,
    ):
        term.write([])
        eventually(lambda: seen.view().stage == "execution")
        assert (seen.view().leader, term.number, term.reason) == ("a", 1, None)
    view = seen.view()
    assert (view.leader, view.candidates, view.reason) == (None, (), "withdrawn")
    assert term.reason is Reason.WITHDRAWN
    with pytest.raises(Deposed):
        term.check()
    lines = caplog.text
    assert "won a term career=c id=a" in lines
    assert "term ended career=c id=a" in lines


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ValueError, "failed"), (KeyboardInterrupt, "withdrawn"), (SystemExit, "withdrawn")],
)
def test_whatever_the_body_raises_goes_on_and_the_term_is_given_back(
    session, seen, opened, error, reason
):
    with pytest.raises(error), session.leadership("c", id="a", timeout_s=WAIT_S):
        raise error
    assert seen.view().reason == reason
    assert led_by_another(opened) == "next"


def test_so_it_is_however_the_block_is_left(session, seen):
    def returns() -> int:
        with session.leadership("c", id="a", timeout_s=WAIT_S) as term:
            return term.number

    assert returns() == 1
    while True:
        with session.leadership("c", id="a", timeout_s=WAIT_S):
            break
    view = seen.view()
    assert (view.term, view.leader, view.candidates) == (2, None, ())


def test_one_block_can_be_entered_again_but_not_twice_at_a_time(session):
    block = session.leadership("c", id="a", timeout_s=WAIT_S)
    refused = []

    def enter() -> None:
        try:
            with block:
                pass
        except WouldDeadlock as exc:
            refused.append(exc)

    with block as term:
        other = threading.Thread(target=enter)
        other.start()
        other.join(WAIT_S)
        assert len(refused) == 1
        term.check()
    with block as term:
        assert term.number == 2


def test_a_second_block_on_the_same_thread_is_refused_instead_of_waiting_for_itself(session):
    with session.leadership("c", id="a", timeout_s=WAIT_S) as term:
        with pytest.raises(WouldDeadlock), session.leadership("c", id="b", timeout_s=WAIT_S):
            pass
        with pytest.raises(WouldDeadlock):
            next(session.terms("c", id="b"))
        with session.leadership("another", id="a", timeout_s=WAIT_S):
            term.check()
    with session.leadership("c", id="b", timeout_s=WAIT_S) as term:
        assert term.number == 2


def test_threads_of_one_session_lead_one_after_the_other(session):
    leading, most, done = [], [], []

    def lead(name: str) -> None:
        for _ in range(3):
            with session.leadership("c", id=name, timeout_s=WAIT_S):
                leading.append(name)
                most.append(len(leading))
                leading.remove(name)
        done.append(name)

    threads = [threading.Thread(target=lead, args=(name,)) for name in "ab"]
    for each in threads:
        each.start()
    for each in threads:
        each.join(WAIT_S)
    assert sorted(done) == ["a", "b"]
    assert max(most) == 1


def test_a_body_that_never_looks_is_told_afterwards_and_holds_nobody_up(opened, seen, proxy):
    session = opened(proxy.address, timeout_s=2.0)
    with session.leadership("c", id="a", timeout_s=WAIT_S) as term:
        proxy.black_hole()
        assert led_by_another(opened) == "next"
        with pytest.raises(Deposed):
            term.write([])
        assert not term.wait(WAIT_S)
        proxy.heal()
    assert term.reason.deposes
    session.close()


def test_a_session_that_is_closed_in_the_body_costs_no_time(session, opened):
    with session.leadership("c", id="a", timeout_s=WAIT_S) as term:
        session.close()
        with pytest.raises(Deposed):
            term.check()
    assert term.reason is Reason.SESSION
    with pytest.raises(SessionClosed), session.leadership("c", id="a"):
        pass


def test_who_waits_for_a_term_is_told_when_the_session_is_closed(session, opened):
    waiting = opened()
    refused = []

    def wait() -> None:
        try:
            with waiting.leadership("c", id="b"):
                pass
        except SessionClosed as exc:
            refused.append(exc)

    with session.leadership("c", id="a", timeout_s=WAIT_S):
        thread = threading.Thread(target=wait)
        thread.start()
        eventually(lambda: Observer(session, "c").view().candidates == ("a", "b"))
        waiting.close()
        thread.join(WAIT_S)
    assert len(refused) == 1


def test_who_is_not_elected_in_time_leaves_the_line(session, opened, seen):
    with session.leadership("c", id="a", timeout_s=WAIT_S):
        with ThreadPoolExecutor(1) as pool, pytest.raises(NotElected, match="'b' of 'c'"):
            pool.submit(opened().leadership("c", id="b", timeout_s=0.1).__enter__).result()
        assert seen.view().candidates == ("a",)


def test_a_paused_career_begins_no_body(session, seen):
    seen.pause()
    with (
        pytest.raises(NotElected),
        session.leadership("c", id="a", timeout_s=2.0),
    ):
        pytest.fail("it began")
    seen.resume()
    with session.leadership("c", id="a", timeout_s=WAIT_S) as term:
        assert term.number >= 2


def test_a_leadership_is_transferred_like_any_other(session, opened, seen):
    reasons = {}

    def lead(name: str, made) -> None:
        for term in made.terms("c", id=name):
            term.wait(WAIT_S)
            reasons[name] = term.reason
            term.finish()

    threads = [
        threading.Thread(target=lead, args=("a", session)),
        threading.Thread(target=lead, args=("b", opened())),
    ]
    threads[0].start()
    eventually(lambda: seen.view().leader == "a")
    threads[1].start()
    eventually(lambda: len(seen.view().candidates) == 2)
    assert seen.transfer("b").leader == "b"
    seen.wish_for(successor=None, term=seen.view().term)
    for each in threads:
        each.join(WAIT_S)
    assert reasons == {"a": Reason.TRANSFER, "b": Reason.STEP_DOWN}


def test_a_loop_goes_on_after_a_resignation_and_ends_when_the_work_is_finished(session, seen):
    numbers = []
    for term in session.terms("c", id="a", cool_off_s=0.0):
        numbers.append(term.number)
        if term.number == 1:
            continue  # resigns by itself
        if term.number == 2:
            term.resign(stand_again_after_s=0.0)
            assert term.reason is Reason.RESIGNED
            assert not term.wait(WAIT_S)
        else:
            term.finish()
    assert numbers == [1, 2, 3]
    view = seen.view()
    assert (view.reason, view.candidates) == ("finished", ())


@pytest.mark.parametrize("how", ["break", "raise", "kept"])
def test_a_loop_that_is_left_releases_its_term(session, seen, how):
    kept = session.terms("c", id="a") if how == "kept" else None
    with suppress(ValueError):
        for _ in session.terms("c", id="a") if kept is None else kept:
            if how == "raise":
                raise ValueError
            break
    if kept is not None:
        assert seen.view().leader == "a"
        kept.close()
    view = seen.view()
    assert (view.reason, view.leader, view.candidates) == ("withdrawn", None, ())


def test_a_deposed_loop_leads_again(opened, proxy):
    session = opened(proxy.address, timeout_s=2.0)
    with closing(session.terms("c", id="a", cool_off_s=0.1)) as terms:
        first = next(terms)
        proxy.black_hole()
        assert not first.wait(WAIT_S)
        proxy.heal()
        assert next(terms).number > first.number
    session.close()


@pytest.mark.parametrize("number", [-1.0, float("inf"), float("nan")])
def test_a_pause_must_be_a_number_of_seconds(session, number):
    with (
        pytest.raises(ValueError, match="is not a number of seconds"),
        session.leadership("c", id="a", timeout_s=WAIT_S) as term,
    ):
        term.resign(stand_again_after_s=number)


@pytest.mark.parametrize("wrong", [{"career": "a/b"}, {"career": ""}, {"id": ""}, {"root": "x"}])
def test_names_are_checked_before_anything_is_done(session, wrong):
    with pytest.raises(ConfigurationError):
        session.leadership(**{"career": "c", **wrong})


def test_a_kazoo_client_leads_as_well(zookeeper_server, znode_root, seen):
    client = KazooClient(zookeeper_server.address + znode_root)
    client.start()
    try:
        with as_session(client).leadership("c", timeout_s=WAIT_S) as term:
            term.check()
    finally:
        client.stop()
        client.close()


def test_a_fork_that_leaves_the_body_releases_nothing(session, seen):
    block = session.leadership("c", id="a", timeout_s=WAIT_S)
    with block as term:
        pid = os.fork()
        if pid == 0:
            with suppress(BaseException):
                block.__exit__(None, None, None)
            os._exit(0)
        os.waitpid(pid, 0)
        term.write([])
        assert seen.view().leader == "a"


# ---- asyncio ------------------------------------------------------------------------------------


def test_a_plain_block_is_refused_in_an_event_loop(session):
    async def plain() -> None:
        with pytest.raises(WouldDeadlock, match="async with"), session.leadership("c"):
            pass
        with pytest.raises(WouldDeadlock, match="async with"):
            next(session.terms("c"))

    asyncio.run(plain())


def test_tasks_lead_one_after_the_other_and_the_loop_goes_on(session):
    leading, order = set(), []

    async def lead(name: str) -> None:
        async with session.leadership("c", id=name, timeout_s=WAIT_S) as term:
            leading.add(name)
            assert len(leading) == 1
            await asyncio.sleep(0.05)
            term.check()
            leading.discard(name)
            order.append(name)

    async def both() -> None:
        await asyncio.wait_for(asyncio.gather(lead("a"), lead("b")), WAIT_S)

    asyncio.run(both())
    assert sorted(order) == ["a", "b"]


def test_a_task_that_is_cancelled_while_it_waits_leaves_the_line(session, opened, seen):
    async def wait() -> None:
        async with opened().leadership("c", id="b"):
            pass

    async def cancelled() -> None:
        task = asyncio.create_task(wait())
        while seen.view().candidates != ("a", "b"):
            await asyncio.sleep(0.02)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with session.leadership("c", id="a", timeout_s=WAIT_S):
        asyncio.run(cancelled())
        eventually(lambda: seen.view().candidates == ("a",))


def test_a_task_that_is_cancelled_as_it_wins_releases_the_term(session, seen):
    async def lead() -> None:
        async with session.leadership("c", id="a"):
            pytest.fail("the body began")

    async def cancelled() -> None:
        task = asyncio.create_task(lead())
        await asyncio.sleep(0)
        while seen.view().stage != "execution":  # blocks the loop: the task cannot go on
            pass
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    eventually(lambda: seen.view().leader is None)
    assert seen.view().candidates == ()


def test_a_task_that_is_cancelled_in_the_body_releases_the_term(session, seen):
    async def lead(entered: asyncio.Event) -> None:
        async with session.leadership("c", id="a", timeout_s=WAIT_S):
            entered.set()
            await asyncio.sleep(WAIT_S)

    async def cancelled() -> None:
        entered = asyncio.Event()
        task = asyncio.create_task(lead(entered))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    view = seen.view()
    assert (view.reason, view.leader, view.candidates) == ("withdrawn", None, ())
