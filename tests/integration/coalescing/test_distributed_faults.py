"""Lost replies at every point, outages, sessions that end: no phantom of a head is left, and never
a second one.
"""

from __future__ import annotations

import struct
from concurrent.futures import ThreadPoolExecutor

import pytest
from workers import HAD_A_PLACE, ROOT

from leaderq.coalescing.automaton import EnqueueOutcome
from leaderq.coalescing.distributed import request as slot_request
from leaderq.errors import ConnectionLost, SessionExpired, TokenOver, WaitTimedOut
from leaderq.testing import eventually
from leaderq.zookeeper import SessionState, SetData, end_session

PING, MULTI, MULTI_READ, CLOSE = 11, 14, 22, -11


def opcode(request: bytes) -> int:
    return int(struct.unpack_from("!i", request, 4)[0]) if len(request) >= 8 else 0


class Nth:
    """True of the n-th request that does something."""

    def __init__(self, nth: int) -> None:
        self.left = nth

    def __call__(self, request: bytes) -> bool:
        if opcode(request) in (PING, CLOSE, 0):
            return False
        self.left -= 1
        return self.left == 0


def scenario(far, near, other, pool):
    """Everything that can become of a request of ``far``; gives its outcomes."""
    outcomes = []
    token = far.enqueue("alone", timeout_s=30)
    assert near.look("alone").head.token == token.holder.token
    assert near.look("alone").waiter is None
    far.dequeue(token, timeout_s=30)
    outcomes.append(token.outcome)

    head = near.enqueue("busy")
    waiting = pool.submit(far.enqueue, "busy", 30)
    eventually(lambda: near.look("busy").waiter)
    assert not other.enqueue("busy")
    near.dequeue(head)
    token = waiting.result(30)
    assert near.look("busy").head.token == token.holder.token
    far.dequeue(token, timeout_s=30)
    outcomes.append(token.outcome)

    head = near.enqueue("full")
    waiting = pool.submit(other.enqueue, "full", 30)
    eventually(lambda: near.look("full").waiter)
    outcomes.append(far.enqueue("full", timeout_s=30).outcome)
    near.dequeue(head)
    other.dequeue(waiting.result(30))

    with near.enqueue("long"), pytest.raises((WaitTimedOut, ConnectionLost)):
        far.enqueue("long", timeout_s=0.05)
    return outcomes


@pytest.mark.timeout(300)
def test_whichever_reply_is_lost_there_is_one_head_and_nothing_is_left(
    proxy, opened, coordinator_of, session
):
    far_session = opened(proxy.address, timeout_s=30.0)
    far, near, other = coordinator_of(far_session), coordinator_of(), coordinator_of()
    nth = 0
    with ThreadPoolExecutor(1) as pool:
        while True:
            nth += 1
            before = proxy.dropped
            proxy.drop_reply_to(Nth(nth))
            alone, busy, full = scenario(far, near, other, pool)
            assert alone is EnqueueOutcome.ACCEPT, f"reply {nth}"
            # its turn may have come before it knew of its place
            assert busy in HAD_A_PLACE, f"reply {nth}"
            assert full is EnqueueOutcome.DECLINE, f"reply {nth}"
            was_lost = proxy.dropped > before
            proxy.heal()
            eventually(lambda: far_session.state is SessionState.CONNECTED)
            eventually(
                lambda: session.children(ROOT) == [], message=f"nothing is left after reply {nth}"
            )
            if not was_lost:
                break
    assert nth > 10  # or the points were not enumerated


def test_a_head_is_in_doubt_during_an_outage_and_current_again_after_it(
    proxy, opened, coordinator_of, session
):
    # in doubt after 10 s, and 5 s are left to come back
    far_session = opened(proxy.address, timeout_s=15.0)
    far = coordinator_of(far_session)
    session.create("/data", b"")
    with far.enqueue("k") as token:
        proxy.refuse()
        eventually(lambda: not token.is_current, timeout_s=30)
        assert not token.is_over
        with pytest.raises(ConnectionLost):
            token.write([SetData("/data", b"a")])
        proxy.heal()
        eventually(lambda: token.is_current, timeout_s=30)
        token.write([SetData("/data", b"b")])


def test_a_waiter_waits_through_an_outage(proxy, opened, coordinator_of):
    far_session = opened(proxy.address, timeout_s=30.0)
    far, near = coordinator_of(far_session), coordinator_of()
    with ThreadPoolExecutor(1) as pool:
        head = near.enqueue("k")
        waiting = pool.submit(far.enqueue, "k")
        eventually(lambda: near.look("k").waiter)
        proxy.refuse()
        eventually(lambda: far_session.state is SessionState.SUSPENDED)
        near.dequeue(head)
        proxy.heal()
        with waiting.result(30) as token:
            assert token.outcome in HAD_A_PLACE


def test_with_its_session_a_head_ends_at_once_and_a_waiter_is_told(
    zookeeper_server, opened, coordinator_of, znode_root
):
    mine = opened(timeout_s=10.0)
    one, two = coordinator_of(mine), coordinator_of()
    with ThreadPoolExecutor(1) as pool, two.enqueue("busy"):
        head = one.enqueue("k")
        waiting = pool.submit(one.enqueue, "busy")
        eventually(lambda: two.look("busy").waiter)
        assert end_session(zookeeper_server.address, mine.credentials, timeout_s=30)
        assert head.ended.wait(20)
        assert not head.is_current
        with pytest.raises(SessionExpired):
            waiting.result(20)
        with pytest.raises(TokenOver, match="session"):
            head.write([SetData("/data", b"late")])
        assert not one.dequeue(head)
        with one.enqueue("k", timeout_s=30) as token:
            assert token.number > head.number


def test_the_servers_refuse_a_write_although_the_loss_of_the_session_is_not_known_yet(
    zookeeper_server, proxy, opened, coordinator_of, session
):
    session.create("/data", b"")
    far_session = opened(proxy.address, timeout_s=10.0)
    far, near = coordinator_of(far_session), coordinator_of()
    token = far.enqueue("k")
    proxy.freeze_direction("to_client")  # nothing is heard of the end
    assert end_session(zookeeper_server.address, far_session.credentials, timeout_s=30)
    with near.enqueue("k", timeout_s=30) as newer:
        assert newer.number > token.number
        with ThreadPoolExecutor(1) as pool:
            late = pool.submit(token.write, [SetData("/data", b"late")])
            newer.write([SetData("/data", b"now")])
            proxy.heal()
            with pytest.raises((TokenOver, ConnectionLost)):
                late.result(30)
    assert session.get("/data")[0] == b"now"


@pytest.mark.parametrize("where", ["seek", "wait", "fence"])
def test_an_interrupt_gives_the_place_back(coordinator_of, session, monkeypatch, where):
    one, two = coordinator_of(), coordinator_of()

    def interrupted(*_):
        raise KeyboardInterrupt

    with one.enqueue("k"), monkeypatch.context() as patch:
        if where == "fence":  # while it waits
            patch.setattr(slot_request.SlotRequest, "_is_head", interrupted)
        elif where == "seek":  # after the place was taken
            patch.setattr(slot_request, "judge", interrupted)
        else:
            patch.setattr(slot_request.SlotRequest, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            two.enqueue("k")
        eventually(lambda: one.look("k").waiter is None)
    eventually(lambda: session.children(ROOT) == [])
