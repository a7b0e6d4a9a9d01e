"""The sinks of leaderq, and those that do not keep to what is asked of a sink."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from mute import TOLD, Mute

from leaderq import errors
from leaderq.producing import ALL_CONFIRMED, BatchOutcome, CallableSink, QueueSink
from leaderq.testing import eventually
from leaderq.threads import Service


class TestCallableSink:
    def test_one_by_one_those_before_the_failure_are_confirmed(self):
        def call(record: int) -> None:
            if record == 2:
                raise ValueError("bad")
            if record == 4:
                raise OSError("away")

        outcome = CallableSink(call, each=True, refuses=(ValueError,)).send([1, 2, 3, 4, 5], 1.0)
        assert list(outcome.refused) == [1]
        assert list(outcome.again) == [3, 4]

    @pytest.mark.parametrize("bad", [(), (0,), (7,), (3, 4), tuple(range(8))])
    def test_the_records_at_fault_are_found_and_the_others_are_given(self, bad):
        got: list[int] = []

        def call(batch: list[int]) -> None:
            if set(batch) & set(bad):
                raise ValueError("one of these")
            got.extend(batch)

        outcome = CallableSink(call, refuses=(ValueError,)).send(list(range(8)), 1.0)
        assert sorted(outcome.refused) == list(bad)
        assert got == [number for number in range(8) if number not in bad]
        assert outcome.again == ()

    def test_an_error_that_nobody_named_is_the_sinks_and_not_a_records(self):
        error = LookupError("whatever this is")

        def call(batch: list[int]) -> None:
            raise error

        outcome = CallableSink(call, refuses=(ValueError,)).send([1, 2], 1.0)
        assert (outcome.refused, list(outcome.again), outcome.error) == ({}, [0, 1], error)
        assert list(CallableSink(call, refuses=(LookupError,)).send([1], 1.0).refused) == [0]

    def test_work_that_nobody_does_or_waits_for_is_not_an_acknowledgement(self):
        async def stores(batch: list[int]) -> None:
            pass

        with pytest.raises(errors.ConfigurationError, match=r"call is .* a coroutine function"):
            CallableSink(stores)
        for call in (stores, lambda batch: (one for one in batch), lambda _batch: Future()):
            outcome = CallableSink(lambda batch, call=call: call(batch)).send([1], 1.0)
            assert list(outcome.again) == [0]
            assert isinstance(outcome.error, errors.SinkBroken)


class TestQueueSink:
    def test_while_the_servers_are_away_it_is_busy_and_puts_nothing_twice(self):
        back, puts = threading.Event(), list[Any]()
        sink = QueueSink(put_many=lambda items: (puts.append(items), back.wait(60)))
        batch = [["a"], ["b"]]
        for _ in range(3):
            with pytest.raises(errors.SinkBusy):
                sink.send(batch, 0.01)
        back.set()
        assert list(sink.send(batch, float("inf")).again) == []
        assert len(puts) == 1

    def test_a_put_that_nobody_does_or_waits_for_is_not_an_acknowledgement(self):
        for returned in (Future(), (one for one in "ab")):
            outcome = QueueSink(put_many=lambda _, put=returned: put).send(["a", "b"], 30.0)
            assert list(outcome.again) == [0, 1]
            assert "put_many returned" in str(outcome.error)

    def test_without_a_thread_nothing_was_put_and_the_next_call_puts_it(self, monkeypatch):
        puts: list[Any] = []
        sink = QueueSink(put_many=puts.append)
        with monkeypatch.context() as patched:
            patched.setattr(Service, "start", lambda _: raised(RuntimeError("no new thread")))
            with pytest.raises(RuntimeError):
                sink.send(["a"], 30.0)
        assert sink.send(["a"], 30.0) == ALL_CONFIRMED
        assert puts == [["a"]]

    @pytest.mark.parametrize(
        ("error", "refused", "again"),
        [
            (None, [], []),
            (("too big", errors.TooLarge("an item", size=10, limit=5)), [1], []),
            # rather twice than never
            ((None, errors.ConnectionLost("which is not known")), [], [0, 1]),
        ],
    )
    def test_what_was_put_is_confirmed_and_what_does_not_fit_is_refused_alone(
        self, error, refused, again
    ):
        puts: list[Any] = []

        def put_many(items: Sequence[Any]) -> None:
            puts.append(items)
            if error is not None:
                raise errors.PutsFailed(stored=1, failed=1, failures=[error])

        outcome = QueueSink(put_many=put_many).send(["a", "too big"], 30.0)
        assert (list(outcome.refused), list(outcome.again)) == (refused, again)
        assert puts[0] == ["a", "too big"]


ERROR = ValueError("of the user")
AWAY = errors.SinkAway("away")


class _FaultySink:
    """``fault`` makes each answer while it is set; ``calls``: the batches it was given."""

    def __init__(self, fault: Callable[[], Any]) -> None:
        self.fault: Callable[[], Any] | None = fault
        self.calls: list[list[Any]] = []
        self.confirmed: list[Any] = []

    def send(self, batch: Sequence[Any], timeout_s: float) -> Any:
        self.calls.append(list(batch))
        if self.fault is not None:
            return self.fault()
        self.confirmed += batch
        return ALL_CONFIRMED

    def close(self, timeout_s: float) -> None:
        pass


def raised(error: BaseException) -> Any:
    raise error


FAULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing": (lambda: None, "NoneType"),
    "refused beyond": (lambda: BatchOutcome({3: ERROR}), "3 is not in range"),
    "refused before": (lambda: BatchOutcome({-1: ERROR}), "-1 is not in range"),
    "refused at no number": (lambda: BatchOutcome({0.0: ERROR}), "float"),
    "refused for nothing": (lambda: BatchOutcome({0: None}), "None"),
    "refused as a list": (lambda: BatchOutcome([0]), "list"),
    "again beyond": (lambda: BatchOutcome(again=[0, 3], error=AWAY), "3 is not"),
    "again as a number": (lambda: BatchOutcome(again=1), "int"),
    "again from what raises": (lambda: BatchOutcome(again=(1 // at for at in [1, 0])), "zero"),
    "an error in words": (lambda: BatchOutcome(again=[0], error="away"), "str"),
    "an exit": (lambda: raised(SystemExit(1)), "SystemExit"),
    "an error without a text": (lambda: raised(Mute()), TOLD),
    "a cancellation": (lambda: raised(asyncio.CancelledError()), "CancelledError"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_an_answer_that_is_none_of_the_batch_is_told_and_costs_nothing(producer, name, caplog):
    fault, words = FAULTS[name]
    sink = _FaultySink(fault)
    with caplog.at_level(logging.WARNING):
        one = producer(sink, batch_items=3, linger_s=60.0, sends=range(3))
        eventually(lambda: len(sink.calls) > 2)  # it tries again and again
    assert sink.calls[:2] == [[0, 1, 2]] * 2
    assert words in str(one.snapshot().sink_error)
    assert words in caplog.text
    balance = one.snapshot().balance
    assert (balance.pending, balance.failed, balance.confirmed) == (3, {}, 0)
    sink.fault = None
    assert one.flush(60)
    assert sink.confirmed == [0, 1, 2]


@pytest.mark.parametrize("error", [ERROR, SystemExit(1)])
def test_a_place_that_cannot_be_told_is_none_and_nothing_confirmed_is_sent_again(producer, error):
    sink = _FaultySink(lambda: BatchOutcome(place_of=lambda at: raised(error)))
    one = producer(sink)
    assert one.submit(1).result(60) is None
    assert one.flush(60)
    assert sink.calls == [[1]]


def test_a_listener_or_a_callback_that_exits_ends_nothing(producer, caplog):
    sink = _FaultySink(lambda: BatchOutcome({0: ERROR}))
    heard: list[str] = []

    def exits(what: Any) -> None:
        heard.append(type(what).__name__)
        sys.exit(1)

    one = producer(sink, dropped_listener=exits, batch_items=1, sends=["refused"])
    eventually(lambda: heard)
    sink.fault = None
    futures: list[Future[None]] = [one.submit(number) for number in range(2)]
    for future in futures:
        future.add_done_callback(exits)
    one.send("last")
    assert one.flush(60).pending == 0
    assert sink.confirmed == [0, 1, "last"]
    assert [future.result(60) for future in futures] == [None, None]
    assert "listener" in caplog.text
