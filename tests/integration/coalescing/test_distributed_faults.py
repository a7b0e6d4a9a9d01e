"""Lost replies at every point, interrupts, waiters that give up: no phantom of a head is left, no
second one, and whoever was declined is covered. More: ``tests/simulation/coalescing.py``.
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


class Scene:
    """One is the head, another waits, and a third is declined, whose cover notes what it covers."""

    def __init__(self, coordinator_of, *, waiter=None, third=None, timeout_s=60.0) -> None:
        self.covered: list[str] = []
        self.one, self.two = coordinator_of(), waiter or coordinator_of()
        self.three = coordinator_of(third, cover=self.covered.append)
        self.pool = ThreadPoolExecutor(1)
        self.head = self.one.enqueue("k")
        self.waiting = self.pool.submit(self.two.enqueue, "k", timeout_s)
        eventually(lambda: self.one.look("k").waiter)
        assert not self.three.enqueue("k")
        assert not self.three._coverage.is_idle

    def must_be_covered(self) -> None:
        """By the third one, which waits now, and begins once the head has left."""
        eventually(lambda: self.three._keeper._held(), timeout_s=60)
        assert self.covered == []
        self.one.dequeue(self.head)
        eventually(lambda: self.covered == ["k"], timeout_s=60)
        eventually(lambda: self.three._coverage.is_idle)
        self.pool.shutdown()


def test_if_the_waiter_gives_up_whoever_was_declined_runs(coordinator_of, session):
    scene = Scene(coordinator_of, timeout_s=3.0)
    with pytest.raises(WaitTimedOut):
        scene.waiting.result(60)
    scene.must_be_covered()
    eventually(lambda: session.children(ROOT) == [])


@pytest.mark.parametrize("raised", [ZeroDivisionError, SystemExit])
def test_a_cover_that_fails_is_logged_and_gives_the_key_back(
    coordinator_of, caplog, session, raised
):
    def cover(key: str) -> None:
        raise raised(key)

    one, two, three = coordinator_of(), coordinator_of(), coordinator_of(cover=cover)
    with ThreadPoolExecutor(1) as pool, one.enqueue("k"):
        waiting = pool.submit(two.enqueue, "k", 3.0)
        eventually(lambda: one.look("k").waiter)
        assert not three.enqueue("k")
        with pytest.raises(WaitTimedOut):
            waiting.result(60)
    eventually(lambda: "covering a key failed" in caplog.text)
    eventually(lambda: session.children(ROOT) == [])
    assert three._coverage._service.is_running, "it covers other keys too"
