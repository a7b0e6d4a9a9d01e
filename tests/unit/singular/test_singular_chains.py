"""Queues in a row: the outcome of one is the request of the next."""

from __future__ import annotations

import pytest
from held import Told

from leaderq.errors import ConfigurationError
from leaderq.singular import SingularUpdateQueue


def test_an_outcome_becomes_a_request_of_the_next_and_a_ticket_goes_along() -> None:
    written: list[int] = []

    def write(n: int) -> int:
        written.append(n)
        return n + 1

    applied: list[str] = []

    def apply(text: str) -> str:
        applied.append(text)
        return text * 2

    first, second = SingularUpdateQueue(write), SingularUpdateQueue(apply)
    assert first.then(second, str) is second
    with second, first:
        assert first.submit(41).result() == "4242"
        first.post(1)
    assert written == [41, 1]
    assert applied == ["42", "2"]
    assert (first.stats().applied, second.stats().applied) == (2, 2)


@pytest.mark.parametrize("max_batch", [None, 3])
def test_three_in_a_row_keep_the_order(max_batch: int | None) -> None:
    applied: list[int] = []
    whole = (lambda batch: batch) if max_batch else (lambda n: n)
    first = SingularUpdateQueue(whole, max_batch=max_batch, capacity=3)  # type: ignore[call-overload]
    second = SingularUpdateQueue(whole, max_batch=max_batch, capacity=2)  # type: ignore[call-overload]
    third = SingularUpdateQueue(applied.append, capacity=1)
    first.then(second).then(third)
    with third, second, first:
        tickets = [first.submit(number) for number in range(100)]
        for number in range(100, 200):
            first.post(number)
        assert {ticket.result() for ticket in tickets} == {None}
    assert applied == list(range(200))


def test_an_error_in_a_later_queue_reaches_the_ticket_and_that_queues_listener() -> None:
    first_told, second_told = Told(), Told()
    first = SingularUpdateQueue(lambda n: n, on_error=first_told)
    second = SingularUpdateQueue(lambda n: 1 / n, on_error=second_told)
    first.then(second)
    with second, first:
        assert isinstance(first.submit(0).exception(), ZeroDivisionError)
        first.post(0)
    assert first_told.errors == []
    assert second_told.kinds == [(0, ZeroDivisionError)] * 2


def test_a_ring_of_queues_is_refused() -> None:
    queues = [SingularUpdateQueue(lambda n: n) for _ in range(3)]
    queues[0].then(queues[1]).then(queues[2])
    for queue in queues:
        with pytest.raises(ConfigurationError, match="ring"):
            queues[2].then(queue)
