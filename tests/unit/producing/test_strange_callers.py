"""Requests and functions that a producer does not expect, from wherever they come."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from forks import in_child
from scripted_sink import is_away, takes

from leaderq.errors import ConfigurationError, ProducerClosed, WouldDeadlock
from leaderq.producing import NO_SYNC, BufferState, CallableSink, Journal, Lost, WhenFull
from leaderq.testing import eventually


async def later(*_: Any) -> None:
    pass


def with_async(name: str) -> Any:
    """A sink and a codec, one of whose methods is a coroutine function."""
    methods = dict.fromkeys(("send", "close", "hand_over", "serialize", "deserialize"), print)
    return SimpleNamespace(**{**methods, name: later})


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"key": later}, "key is later, a coroutine function"),
    ({"dropped_listener": later}, "dropped_listener is later, a coroutine function"),
    ({"to": with_async("close")}, "the sink's close is later"),
    ({"to": with_async("hand_over")}, "the sink's hand_over is later"),
    ({"to": print}, "CallableSink"),
    ({"to": CallableSink}, "an instance"),
    ({"to": object()}, "send and close"),
    ({"codec": with_async("deserialize")}, "deserialize is later"),
    ({"codec": object()}, "serialize is None"),
    ({"when_full": WhenFull.DROP_OLDEST}, "DROP_OLDEST with a journal"),
]


@pytest.mark.parametrize(("given", "why"), REFUSED)
def test_what_cannot_be_used_is_refused_when_it_is_given(producer, tmp_path, given, why):
    with pytest.raises(ConfigurationError, match=why):
        producer(journal=tmp_path / "journal", **given)
    assert not (tmp_path / "journal").exists()


NO_BYTES = SimpleNamespace(serialize=str, deserialize=int)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"codec": NO_BYTES}, r"serialize returned a str .* must return bytes"),
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


def test_a_request_changed_after_it_was_sent_costs_no_other_caller_anything(
    producer, sink, tmp_path
):
    sink.now(is_away)
    lost: list[Lost] = []
    changed: dict[str, Any] = {"a": 1}
    sends = ["before", changed, "behind"]
    one = producer(journal=tmp_path, max_items=8, dropped_listener=lost.append, sends=sends)
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

    def refused() -> None:
        for ask in (one.flush, one.snapshot, lambda: one.send(1)):
            with pytest.raises(ProducerClosed):
                ask()
        assert one.close()

    with one._buffer._lock:  # by another thread, say, which the child does not have
        in_child(refused)


@pytest.mark.parametrize("lock", ["buffer", "journal"])
def test_a_call_that_interrupts_its_own_thread_inside_is_refused_at_once(producer, tmp_path, lock):
    with Journal(tmp_path, sync=NO_SYNC) as journal:
        one = producer(journal=journal, persistence=NO_SYNC)
        calls: list[Any] = [partial(one.send, 1), partial(one.submit, 1)]
        calls += [one.snapshot, one.flush, one.close]
        if lock == "journal":
            calls += [partial(journal.append, b"x"), partial(journal.append_soon, b"x")]
            calls += [journal.flush, journal.close]
        with one._buffer._lock if lock == "buffer" else journal._gate:  # as the thread does
            for call in calls:
                with pytest.raises(WouldDeadlock):
                    call()
        assert one.snapshot().balance.accepted == 0
        one.send(2)
        assert one.flush(30)
        one.close()
