"""The callable sink and the queue sink, with callables and queues that fail as the test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest

from leaderq import clock
from leaderq.errors import (
    ConfigurationError,
    ConnectionLost,
    PutsFailed,
    SinkAway,
    SinkBroken,
    SinkBusy,
    TooLarge,
)
from leaderq.producing import BufferedProducer, CallableSink, QueueSink


class TestCallableSink:
    def test_a_return_is_the_acknowledgement(self) -> None:
        got: list[Any] = []
        assert CallableSink(got.append).send([1, 2], 1.0).refused == {}
        assert CallableSink(got.append, each=True).send([1, 2], 1.0).again == ()
        assert got == [[1, 2], 1, 2]

    def test_one_by_one_those_before_the_failure_are_confirmed(self) -> None:
        def call(record: int) -> None:
            if record == 2:
                raise ValueError("bad")
            if record == 4:
                raise OSError("away")

        outcome = CallableSink(call, each=True, refuses=(ValueError,)).send([1, 2, 3, 4, 5], 1.0)
        assert list(outcome.refused) == [1]
        assert list(outcome.again) == [3, 4]

    @pytest.mark.parametrize("bad", [(), (0,), (7,), (3, 4), tuple(range(8))])
    def test_the_records_at_fault_are_found_and_the_others_are_given(
        self, bad: tuple[int, ...]
    ) -> None:
        got: list[int] = []

        def call(batch: list[int]) -> None:
            if set(batch) & set(bad):
                raise ValueError("one of these")
            got.extend(batch)

        outcome = CallableSink(call, refuses=(ValueError,)).send(list(range(8)), 1.0)
        assert sorted(outcome.refused) == list(bad)
        assert got == [number for number in range(8) if number not in bad]
        assert outcome.again == ()

    def test_an_error_that_nobody_named_is_the_sinks_and_not_a_records(self) -> None:
        error = LookupError("whatever this is")

        def call(batch: list[int]) -> None:
            raise error

        outcome = CallableSink(call, refuses=(ValueError,)).send([1, 2], 1.0)
        assert (outcome.refused, list(outcome.again), outcome.error) == ({}, [0, 1], error)
        assert list(CallableSink(call, refuses=(LookupError,)).send([1], 1.0).refused) == [0]

    def test_work_that_nobody_does_or_waits_for_is_not_an_acknowledgement(self) -> None:
        async def stores(batch: list[int]) -> None:
            pass

        with pytest.raises(ConfigurationError, match=r"call is .* a coroutine function"):
            CallableSink(stores)
        for call in (stores, lambda batch: (one for one in batch), lambda _batch: Future()):
            outcome = CallableSink(lambda batch, call=call: call(batch)).send([1], 1.0)
            assert list(outcome.again) == [0]
            assert isinstance(outcome.error, SinkBroken)


class TestKafkaSink:
    def test_the_end_of_a_client_is_no_message_s_fault_and_another_client_sends_it(self) -> None:
        from confluent_kafka import KafkaError, KafkaException

        from leaderq.kafka.clients.confluent_producer import ConfluentSender
        from leaderq.kafka.sink import KafkaSink

        class Ending(ConfluentSender):
            def open(self, timeout_s: float) -> None:
                self._counts["t"] = (1, clock.now_s())

            def _give(self, *_: Any) -> None:
                raise KafkaException(KafkaError(KafkaError._FATAL, "too large, some time ago"))

        sink = KafkaSink("nowhere:1", "t", client="confluent")
        sink._make = Ending  # type: ignore[assignment]
        outcome = sink.send([b"a", b"b"], 1.0)
        assert (outcome.refused, list(outcome.again)) == ({}, [0, 1])
        assert isinstance(outcome.error, SinkAway)
        assert sink._client is None


class FakeQueue:
    """``put_many`` as that of a recipe; ``does`` decides."""

    def __init__(self, does: Callable[[Sequence[Any]], object]) -> None:
        self.does = does
        self.puts: list[list[Any]] = []

    def put_many(self, items: Any, **options: Any) -> int:
        self.puts.append(list(items))
        self.does(items)
        return len(items)


class TestQueueSink:
    def test_what_put_many_returns_for_is_confirmed(self) -> None:
        queue = FakeQueue(lambda items: None)
        outcome = QueueSink(queue).send(["a", "b"], 30.0)
        assert (outcome.refused, list(outcome.again)) == ({}, [])
        assert queue.puts == [["a", "b"]]

    def test_while_the_servers_are_away_it_is_busy_and_puts_nothing_twice(self) -> None:
        back = threading.Event()
        queue = FakeQueue(lambda items: back.wait(60))
        sink = QueueSink(queue)
        batch = [["a"], ["b"]]
        for _ in range(3):
            with pytest.raises(SinkBusy):
                sink.send(batch, 0.01)
        back.set()
        assert list(sink.send(batch, 30.0).again) == []
        assert len(queue.puts) == 1

    def test_an_item_that_does_not_fit_is_refused_alone(self) -> None:
        big = "x" * 10

        def does(items: Sequence[Any]) -> None:
            failures = [
                (item, TooLarge("an item", size=10, limit=5)) for item in items if item == big
            ]
            raise PutsFailed(stored=1, failed=1, failures=failures)

        outcome = QueueSink(FakeQueue(does)).send(["a", big], 30.0)
        assert list(outcome.refused) == [1]
        assert list(outcome.again) == []

    def test_an_unknown_outcome_is_put_again(self) -> None:
        def does(items: Sequence[Any]) -> None:
            raise PutsFailed(stored=1, failed=1, failures=[(None, ConnectionLost("no answer"))])

        outcome = QueueSink(FakeQueue(does)).send(["a", "b"], 30.0)
        assert list(outcome.again) == [0, 1]  # which of them is not known: rather twice than never


@pytest.mark.parametrize(
    ("sink", "remedy"),
    [
        (print, "CallableSink"),
        (CallableSink, "an instance"),
        (object(), "send and close"),
        (None, "send"),
    ],
)
def test_what_is_no_sink_is_refused_when_it_is_given(sink: Any, remedy: str) -> None:
    with pytest.raises(ConfigurationError, match=remedy):
        BufferedProducer(sink)
