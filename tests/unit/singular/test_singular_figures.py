"""Depth, age of the oldest, and the account of every request; waits that would never end."""

from __future__ import annotations

from typing import Any

import pytest
from held import WAIT_S, Clock, Held, Told

from leaderq.errors import WouldDeadlock
from leaderq.singular import SingularUpdateQueue


def test_a_queue_at_rest_shows_nothing() -> None:
    queue = SingularUpdateQueue(lambda n: n, name="q")
    assert (queue.depth, queue.stats().oldest_age_s) == (0, 0.0)
    assert repr(queue) == "<SingularUpdateQueue 'q', new, 0 waiting>"
    queue.submit(1).result()
    assert repr(queue) == "<SingularUpdateQueue 'q', working, 0 waiting>"
    queue.close()
    assert repr(queue) == "<SingularUpdateQueue 'q', closed, 0 waiting>"


def test_the_oldest_has_waited_since_the_writer_began_what_it_has_in_hand(clock: Clock) -> None:
    held = Held()
    with SingularUpdateQueue(held) as queue:
        queue.post("a")
        assert held.begun.wait(WAIT_S)
        assert queue.stats().oldest_age_s == 0
        clock.at_s += 3
        assert queue.stats().oldest_age_s == 0  # nobody waits
        queue.post("b")
        clock.at_s += 2
        # 2 in truth: never less, and more by one call of the handler at most
        assert queue.stats().oldest_age_s == 5
        held.go.set()


@pytest.mark.parametrize("timeout", [None, WAIT_S])
def test_a_handler_that_waits_for_its_own_queue_is_told_so(timeout: float | None) -> None:
    told = Told()

    def handle(request: str) -> Any:
        return queue.submit("inner").result(timeout) if request == "outer" else request

    with SingularUpdateQueue(handle, name="q", on_error=told) as queue:
        error = queue.submit("outer").exception()
        assert isinstance(error, WouldDeadlock)
        assert "'q'" in str(error)
        assert "post_back" in str(error)
    assert told.kinds == [("outer", WouldDeadlock)]
    assert queue.stats().applied == 1
