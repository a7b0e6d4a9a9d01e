"""Lost replies at every point, outages, sessions that end: no phantom of a head is left, and never
a second one.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from reply_rules import at_every_point
from workers import HAD_A_PLACE, ROOT

from leaderq.coalescing.automaton import EnqueueOutcome
from leaderq.coalescing.distributed import request as slot_request
from leaderq.errors import ConnectionLost, WaitTimedOut
from leaderq.testing import eventually


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

    def outcomes_are_right(point: int) -> None:
        alone, busy, full = scenario(far, near, other, pool)
        assert alone is EnqueueOutcome.ACCEPT, f"reply {point}"
        # its turn may have come before it knew of its place
        assert busy in HAD_A_PLACE, f"reply {point}"
        assert full is EnqueueOutcome.DECLINE, f"reply {point}"
        eventually(lambda: session.children(ROOT) == [], message=f"nothing is left after {point}")

    with ThreadPoolExecutor(1) as pool:
        assert at_every_point(proxy, outcomes_are_right, far_session) > 10


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
