"""Tickets are futures of concurrent.futures: whatever takes those takes these."""

from __future__ import annotations

import concurrent.futures
import threading
from concurrent.futures import CancelledError, InvalidStateError

import pytest
from held import WAIT_S, Held, Told

from leaderq.singular import SingularUpdateQueue


def test_a_ticket_goes_from_pending_over_running_to_done() -> None:
    held = Held()
    with SingularUpdateQueue(held) as queue:
        first, second = queue.submit("a"), queue.submit("b")
        assert held.begun.wait(WAIT_S)
        assert isinstance(first, concurrent.futures.Future)
        assert first.running()
        assert not first.done()
        assert not second.running()
        assert not second.done()
        held.go.set()
        assert second.result() == "b"
        assert first.done()
        assert not first.running()
        assert not first.cancelled()
        assert first.exception() is None


def test_a_request_not_begun_can_be_cancelled_and_one_begun_cannot() -> None:
    held, told = Held(), Told()
    with SingularUpdateQueue(held, on_error=told) as queue:
        first, second, third = (queue.submit(letter) for letter in "abc")
        assert held.begun.wait(WAIT_S)
        assert not first.cancel()
        assert second.cancel()
        assert second.cancel()
        assert second.cancelled()
        assert second.done()
        with pytest.raises(CancelledError):
            second.result()
        with pytest.raises(CancelledError):
            second.exception(0)
        held.go.set()
        assert third.result() == "c"
    assert held.applied == ["a", "c"]
    assert queue.stats().cancelled == 1
    assert told.errors == []


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
