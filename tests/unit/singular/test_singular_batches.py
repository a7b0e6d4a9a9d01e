"""A batch handler takes all that stands in the line."""

from __future__ import annotations

import threading
from typing import Any

from held import WAIT_S, Told

from leaderq.singular import SingularUpdateQueue


class HeldBatches:
    """Notes the batches it is given; waits to be let go."""

    def __init__(self, outcomes: Any = None) -> None:
        self.begun = threading.Event()
        self.go = threading.Event()
        self.batches: list[list[Any]] = []
        self.outcomes = outcomes or (lambda batch: None)

    def __call__(self, batch: list[Any]) -> Any:
        self.begun.set()
        assert self.go.wait(WAIT_S)
        self.batches.append(list(batch))
        return self.outcomes(batch)


def test_a_batch_is_all_that_stands_in_the_line_up_to_the_cap() -> None:
    held = HeldBatches()
    with SingularUpdateQueue(held, max_batch=4) as queue:
        queue.post(0)
        assert held.begun.wait(WAIT_S)
        for number in range(1, 11):
            queue.post(number)
        assert queue.stats().in_hand == 1
        held.go.set()
    assert held.batches == [[0], [1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    assert queue.stats().applied == 11


def test_each_request_gets_its_own_outcome() -> None:
    held = HeldBatches(lambda batch: [number * 2 for number in batch])
    with SingularUpdateQueue(held, max_batch=100) as queue:
        tickets = [queue.submit(number) for number in range(5)]
        queue.post(7)
        held.go.set()
        assert [ticket.result() for ticket in tickets] == [0, 2, 4, 6, 8]


def test_an_exception_among_the_outcomes_fails_that_request_only() -> None:
    told = Told()
    error = ValueError("three")
    held = HeldBatches(lambda batch: [error if number == 3 else number for number in batch])
    with SingularUpdateQueue(held, max_batch=10, on_error=told) as queue:
        tickets = [queue.submit(number) for number in (1, 3, 5)]
        queue.post(3)
        held.go.set()
        assert [ticket.exception() for ticket in tickets] == [None, error, None]
    assert told.errors == [(3, error), (3, error)]
    assert (queue.stats().applied, queue.stats().failed) == (2, 2)


def test_a_handler_that_raises_fails_the_whole_batch() -> None:
    told = Told()

    def fail(batch: list[int]) -> None:
        raise OSError("disk full")

    with SingularUpdateQueue(fail, max_batch=10, on_error=told) as queue:
        tickets = [queue.submit(number) for number in range(3)]
        assert {type(ticket.exception()) for ticket in tickets} == {OSError}
    assert told.kinds == [(0, OSError), (1, OSError), (2, OSError)]
