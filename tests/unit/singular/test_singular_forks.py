"""A fork copies the queue and not its thread."""

from __future__ import annotations

import os

import pytest
from forks import in_child
from held import WAIT_S, Held

from leaderq.errors import QueueClosed
from leaderq.singular import SingularUpdateQueue


@pytest.mark.parametrize("capacity", [None, 2])
def test_a_child_is_refused_and_the_parent_goes_on(capacity: int | None) -> None:
    held = Held()
    parent = os.getpid()
    with SingularUpdateQueue(held, capacity=capacity) as queue:
        first, second = queue.submit("a"), queue.submit("b")
        assert held.begun.wait(WAIT_S)

        def refused() -> None:
            for use in (
                queue.post,
                queue.submit,
                lambda _: first.result(),
                lambda _: second.exception(WAIT_S),
            ):
                with pytest.raises(QueueClosed, match=f"belongs to process {parent}"):
                    use("c")
            assert queue.is_closed
            assert not queue.close(timeout_s=WAIT_S)
            with queue:
                pass

        in_child(refused)
        queue.post("d")
        held.go.set()
    assert held.applied == ["a", "b", "d"]
