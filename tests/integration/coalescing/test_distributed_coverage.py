"""A request that was declined is covered, although the waiter it relied on gives up, dies, or is
cut off.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from workers import ROOT

from leaderq.errors import WaitTimedOut
from leaderq.testing import eventually


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
