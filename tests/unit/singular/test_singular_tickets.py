"""Tickets are futures of concurrent.futures: whatever takes those takes these."""

from __future__ import annotations

import threading
from concurrent.futures import InvalidStateError

import pytest
from held import Held

from leaderq.singular import SingularUpdateQueue


def test_callbacks_run_on_the_writers_thread_or_at_once_if_it_is_done() -> None:
    held = Held()
    called: list[tuple[int, str]] = []

    def note(number: int) -> object:
        return lambda ticket: called.append((number, threading.current_thread().name))

    with SingularUpdateQueue(held, name="w") as queue:
        ticket = queue.submit("a")
        ticket.add_done_callback(note(1))
        ticket.add_done_callback(note(2))
        held.go.set()
    ticket.add_done_callback(note(3))
    assert called == [(1, "leaderq-w"), (2, "leaderq-w"), (3, threading.current_thread().name)]


@pytest.mark.parametrize("error", [ValueError("x")])
def test_a_callback_that_fails_is_logged_and_the_rest_are_called(
    caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    def broken(_: object) -> None:
        raise error

    held, called = Held(), []
    with SingularUpdateQueue(held) as queue:
        ticket = queue.submit("a")
        ticket.add_done_callback(broken)
        ticket.add_done_callback(called.append)
        held.go.set()
        assert queue.submit("b").result() == "b"
    assert called == [ticket]
    assert "callback of a request failed" in caplog.text


def test_its_outcome_is_the_writers_to_set() -> None:
    with SingularUpdateQueue(lambda n: n) as queue:
        ticket = queue.submit(1)
        assert ticket.result() == 1
        with pytest.raises(InvalidStateError):
            ticket.set_result(2)
        with pytest.raises(InvalidStateError):
            ticket.set_exception(ValueError())
        assert ticket.result() == 1
        assert "FINISHED" in repr(ticket) or "finished" in repr(ticket)
