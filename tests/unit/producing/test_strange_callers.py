"""Requests and functions that a producer does not expect, from wherever they come."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from scripted_sink import is_away, takes

from leaderq.errors import ConfigurationError, ProducerClosed, WouldDeadlock
from leaderq.producing import NO_SYNC, BufferState, CallableSink, Journal, Lost, WhenFull
from leaderq.testing import eventually


async def later(*_: Any) -> None:
    pass


class WithAsync:
    """A sink, or a codec, one of whose methods is a coroutine function."""

    def __init__(self, name: str) -> None:
        for one in ("send", "close", "serialize", "deserialize"):
            setattr(self, one, later if one == name else print)


REFUSED: list[tuple[dict[str, Any], str]] = [
    *(
        ({name: later}, f"{name} is later, a coroutine function")
        for name in ("key", "dropped_listener")
    ),
    *(({"to": WithAsync(name)}, f"the sink's {name} is later") for name in ("send", "close")),
    ({"to": print}, "CallableSink"),
    ({"to": CallableSink}, "an instance"),
    ({"to": object()}, "send and close"),
    ({"codec": WithAsync("serialize")}, "serialize is later"),
    ({"codec": WithAsync("deserialize")}, "deserialize is later"),
    ({"codec": object()}, "serialize is None"),
    ({"when_full": WhenFull.DROP_OLDEST}, "DROP_OLDEST with a journal"),
]


@pytest.mark.parametrize(("given", "why"), REFUSED)
def test_what_cannot_be_used_is_refused_when_it_is_given(producer, tmp_path, given, why):
    with pytest.raises(ConfigurationError, match=why):
        producer(journal=tmp_path / "journal", **given)
    assert not (tmp_path / "journal").exists()


class Texts:
    """A codec that returns no bytes."""

    def serialize(self, value: Any) -> Any:
        return str(value)

    def deserialize(self, data: bytes) -> Any:
        return int(data)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"codec": Texts()}, r"serialize returned a str .* must return bytes"),
        ({"key": lambda request: [request]}, "key returned a list for a request, which has no"),
    ],
)
def test_a_request_that_cannot_be_told_or_kept_is_refused_before_anything_is_counted(
    producer, tmp_path, given, why
):
    one = producer(journal=tmp_path, **given)
    with pytest.raises(ConfigurationError, match=why):
        one.send(1)
    balance = one.snapshot().balance
    assert (balance.accepted, balance.pending) == (0, 0)
    assert one.close()


# -- requests changed after they were sent, a disk that is behind, a fork


def test_a_request_changed_after_it_was_sent_costs_no_other_caller_anything(
    producer, sink, tmp_path
):
    sink.now(is_away)
    lost: list[Lost] = []
    one = producer(journal=tmp_path, max_items=8, dropped_listener=lost.append)
    changed: dict[str, Any] = {"a": 1}
    for request in ("before", changed, "behind"):
        one.send(request)
    changed["a"] = object()
    for number in range(8):
        one.send(number)
    assert one.state is BufferState.SPILLING
    assert not one.close(0.05)
    balance = one.snapshot().balance
    assert balance.is_exact
    assert (balance.accepted, balance.pending) == (11, 10)
    assert balance.dropped == {"not written to the journal": 1}
    eventually(lambda: [one.request for one in lost] == [changed])
    assert isinstance(lost[0].error, ConfigurationError)
    sink.now(takes)
    after = producer(journal=tmp_path)
    assert after.flush(30)
    assert sink.confirmed == ["before", "behind", *range(8)]


def test_a_forked_child_is_refused_whatever_it_asks_even_if_the_lock_was_held(producer):
    one = producer()
    with one._buffer._lock:  # by another thread, say, which the child does not have
        child = os.fork()
        if child == 0:
            refused = 0
            for ask in (one.flush, one.snapshot, lambda: one.send(1)):
                try:
                    ask()
                except ProducerClosed:
                    refused += 1
            os._exit(0 if refused == 3 and one.close() else 1)
    done: list[int] = []

    def is_done() -> bool:
        number, status = os.waitpid(child, os.WNOHANG)
        done.extend([status] if number else [])
        return bool(done)

    try:
        eventually(is_done)
    finally:
        if not done:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(done[0]) == 0


# -- requests sent by finalizers, signal handlers and logging handlers, whatever they interrupt


@pytest.mark.parametrize("lock", ["buffer", "journal"])
def test_a_call_that_interrupts_its_own_thread_inside_is_refused_at_once(
    producer, sink, tmp_path, lock
):
    journal = Journal(tmp_path, sync=NO_SYNC)
    one = producer(journal=journal, persistence=NO_SYNC)
    calls: list[Any] = [
        lambda: one.send(1),
        lambda: one.submit(1),
        one.snapshot,
        one.flush,
        one.close,
    ]
    held = one._buffer._lock if lock == "buffer" else journal._gate
    if lock == "journal":
        calls += [
            lambda: journal.append(b"x"),
            lambda: journal.append_soon(b"x"),
            journal.flush,
            journal.close,
        ]
    with held:  # as the interrupted thread does
        for call in calls:
            with pytest.raises(WouldDeadlock):
                call()
    assert one.snapshot().balance.accepted == 0
    one.send(2)
    assert one.flush(30)
    one.close()
    journal.close()
