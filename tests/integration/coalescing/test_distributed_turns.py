"""One works on a key, one waits, the rest are declined, on a real server. With faults, with killed
and frozen processes, and with lost answers: ``tests/simulation/test_lives.py``.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest

from leaderq.coalescing import DistributedQueueCoordinator
from leaderq.coalescing.automaton import EnqueueOutcome
from leaderq.coalescing.distributed import request as slot_request
from leaderq.errors import (
    CoordinatorClosed,
    NodeExists,
    TokenOver,
    WaitTimedOut,
    WouldDeadlock,
)
from leaderq.testing import eventually
from leaderq.zookeeper import Create, SetData

ROOT = "/coalescing"


@pytest.fixture
def coordinator_of(opened):
    with ExitStack() as stack:

        def make(session=None):
            one = DistributedQueueCoordinator(session or opened(), ROOT)
            stack.callback(one.close, timeout_s=0.5)
            return one

        yield make


def taken(session, key="k"):
    """How many slots of the key are taken: one by the head, one by the waiter."""
    return [
        name[-2:] in ("~0", "~1") and f"s-{key}~" in name for name in session.children(ROOT)
    ].count(True)


# Who has a place, and finds that the one before has gone meanwhile, has not waited: ACCEPT.
HAD_A_PLACE = (EnqueueOutcome.BLOCK, EnqueueOutcome.ACCEPT)


def test_one_runs_one_waits_and_the_rest_are_declined(coordinator_of, session):
    one, two, three = coordinator_of(), coordinator_of(), coordinator_of()
    with ThreadPoolExecutor(1) as pool, one.enqueue("k") as head:
        assert head
        assert head.outcome is EnqueueOutcome.ACCEPT
        waiting = pool.submit(two.enqueue, "k")
        eventually(lambda: taken(session) == 2)
        declined = three.enqueue("k")
        assert not declined
        assert declined.outcome is EnqueueOutcome.DECLINE
        assert not one.enqueue("k")
        assert three.enqueue("other")
        assert not waiting.done()
        assert one.dequeue(head)
        token = waiting.result(30)
        assert token
        assert token.outcome in HAD_A_PLACE
        assert token.number > head.number
        assert not head.is_current
        assert head.is_over
        assert two.dequeue(token)
    assert taken(session) == 0


def test_whoever_would_wait_for_itself_is_told_and_may_wait_if_its_session_is_over(coordinator_of):
    one = coordinator_of()
    with one.enqueue("k") as token:
        with pytest.raises(WouldDeadlock):
            one.enqueue("k", timeout_s=0.0)
        token.holder = replace(token.holder, session=1)  # another's slot stands there now, say
        with pytest.raises(WaitTimedOut):
            one.enqueue("k", timeout_s=0.0)


def test_f8_a_waiter_is_told_of_its_turn_by_one_event_and_asks_nothing_more(
    coordinator_of, opened, monkeypatch
):
    one, session = coordinator_of(), opened()
    two, asked = coordinator_of(session), []
    for name in ("get_async", "multi_read_async"):
        real = getattr(session, name)
        monkeypatch.setattr(
            session,
            name,
            lambda *a, real=real, name=name, **k: (asked.append(name), real(*a, **k))[1],
        )
    with ThreadPoolExecutor(1) as pool, one.enqueue("k"):
        waiting = pool.submit(two.enqueue, "k")
        eventually(lambda: asked == ["multi_read_async"] * 2 + ["get_async"])
        session.get("/coalescing")  # answered after them
        asked.clear()
        one.dequeue(next(iter(one._held.values())))
        with waiting.result(30) as token:
            assert token.outcome is EnqueueOutcome.BLOCK
        assert asked == []


def test_a_fenced_write_passes_while_the_token_is_current_and_not_after(coordinator_of, session):
    one = coordinator_of()
    session.create("/data", b"")
    with one.enqueue("k") as token:
        assert token.write([SetData("/data", b"1"), Create("/more")])[1] == "/more"
        token.confirm()
        with pytest.raises(NodeExists) as refused:
            token.write([SetData("/data", b"2"), Create("/more")])
        assert refused.value.index == 1
        assert token.is_current
    with pytest.raises(TokenOver, match="dequeued"):
        token.write([SetData("/data", b"3")])
    head = one.enqueue("k")
    session.delete(head.fence.path)
    with pytest.raises(TokenOver, match="somebody deleted it"):
        head.write([SetData("/data", b"late")])
    assert head.ended.is_set()
    assert not one.dequeue(head)
    assert session.get("/data")[0] == b"1"


def test_a_closed_coordinator_tells_those_who_wait_and_ends_what_is_held(coordinator_of, session):
    one, two = coordinator_of(), coordinator_of()
    held = one.enqueue("held")
    with ThreadPoolExecutor(1) as pool, two.enqueue("k"):
        waiting = pool.submit(one.enqueue, "k")
        eventually(lambda: taken(session) == 2)
        assert not one.close(timeout_s=0.2)
        with pytest.raises(CoordinatorClosed):
            waiting.result(30)
    with pytest.raises(TokenOver, match="closed"):
        held.confirm()
    assert one.close()
    eventually(lambda: session.children(ROOT) == [])


@pytest.mark.parametrize(
    "where", [(slot_request, "judge"), (slot_request.SlotRequest, "_is_head")], ids=["seek", "wait"]
)
def test_an_interrupt_gives_the_place_back(coordinator_of, session, monkeypatch, where):
    one, two = coordinator_of(), coordinator_of()

    def interrupted(*_):
        raise KeyboardInterrupt

    with one.enqueue("k"), monkeypatch.context() as patch:
        patch.setattr(*where, interrupted)
        with pytest.raises(KeyboardInterrupt):
            two.enqueue("k")
        eventually(lambda: taken(session) == 1)
    eventually(lambda: session.children(ROOT) == [])
