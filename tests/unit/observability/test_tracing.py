from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from itertools import count
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.trace import SpanKind, StatusCode
from traces import Spans, exporter, linked
from traces import spans as spans

from leaderq import AsyncKafkaLeaderCareer, KafkaLeaderCareer, events
from leaderq.base import clock
from leaderq.kafka import Record, dead_letter
from leaderq.kafka.sink import KafkaSink
from leaderq.observability import tracing
from leaderq.producing import BufferedProducer, Lost
from leaderq.producing.sinks import BatchOutcome
from leaderq.term import Reason, Term
from leaderq.testing import drive
from leaderq.testing import term as a_term

SENDERS = [f"00-{n:032x}-{n:016x}-01" for n in range(1, 9)]


def row(
    offset: int, sender: str | None = None, topic: str = "clicks", partition: int = 0
) -> Record:
    headers = [("a", b"b")] + ([("traceparent", sender.encode())] if sender else [])
    return Record(topic, partition, offset, 0, b"k", b"v", headers)


def carried(headers: Iterable[tuple[str, bytes]]) -> int:
    return int(dict(headers)["traceparent"].decode().split("-")[2], 16)


class Sending(KafkaLeaderCareer):
    topics, offsets = ("clicks", "views"), "transaction"
    current: Any = None

    def handle(self, records: Sequence[Record], term: Term) -> None:
        self.current = trace.get_current_span()
        for record in records:
            self.produce("out", record.value)


class SendingCoroutine(AsyncKafkaLeaderCareer):
    topics, offsets, order, concurrency = ("clicks", "views"), "transaction", "key", 3

    async def handle_record(self, record: Record, term: Any) -> None:
        self.produce("out", record.value)


def test_a_batch_is_one_span_linked_once_to_each_sender_and_to_nothing_else(spans: Spans) -> None:
    records = [row(0, SENDERS[0]), row(1, SENDERS[1]), row(2, SENDERS[0]), row(3), row(4, "junk")]
    career = Sending()
    with trace.get_tracer("test").start_as_current_span("around"):
        drive(career, records)
    (span,) = spans("process")
    assert (span.name, span.kind, span.parent) == ("process clicks", SpanKind.CONSUMER, None)
    assert linked(span) == [1, 2]
    assert dict(span.attributes or {}) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "clicks",
        "messaging.batch.message_count": 5,
        "messaging.consumer.group.name": "sending",
        "leaderq.career": "sending",
        "leaderq.term": 1,
    }
    assert career.current.get_span_context() == span.context


def test_links_take_a_hundredth_of_the_time_and_a_span_without_them_says_so(spans, monkeypatch):
    monkeypatch.undo()  # the share is that of a program
    looks = count(step=0.0001)  # so much passes between looks at the clock
    now_s = clock.now_s()
    monkeypatch.setattr(clock, "now_s", lambda: now_s + next(looks))
    tracing.stop()
    tracing.start()
    calls, term = 2000, a_term(1)
    for number in range(calls):
        with tracing.of_records([row(number, SENDERS[0])], term, "g", ("clicks",)):
            pass
    found = spans("process")
    linked_calls = sum(map(bool, map(linked, found)))
    assert [bool(span.attributes.get(tracing.UNLINKED)) for span in found] == [
        not linked(span) for span in found
    ]
    saved = tracing._SAVED_S / 0.0001
    passed = (clock.now_s() - now_s) / 0.0001
    assert saved <= linked_calls <= saved + tracing.LINKS_SHARE * passed + 1


def test_what_a_handler_produces_is_its_child_and_carries_its_own_context(spans: Spans) -> None:
    driven = drive(Sending(), [row(0, SENDERS[0]), row(1, topic="views")])
    (handled,) = spans("process")
    assert handled.name == "process"  # of several topics it names none
    sent = spans("send")
    assert [one.name for one in sent] == ["send out"] * 2
    assert {one.parent.span_id for one in sent} == {handled.context.span_id}
    assert {one.kind for one in sent} == {SpanKind.PRODUCER}
    held = [carried(message.headers) for message in driven.produced]
    assert held == [one.context.span_id for one in sent]


def test_records_handled_singly_by_coroutines_have_a_span_each(spans: Spans) -> None:
    drive(SendingCoroutine(), [row(n, SENDERS[n], partition=n) for n in range(4)])
    handled = {span.context.span_id: span for span in spans("process")}
    assert sorted(map(linked, handled.values())) == [[1], [2], [3], [4]]
    about = [dict(span.attributes or {}) for span in handled.values()]
    assert {one["messaging.kafka.offset"] for one in about} == {0, 1, 2, 3}
    assert {one["messaging.destination.partition.id"] for one in about} == set("0123")
    assert {one.parent.span_id for one in spans("send")} == set(handled)


def test_a_failed_handler_marks_its_span_and_the_dead_letter_leads_to_it(spans: Spans) -> None:
    class Failing(KafkaLeaderCareer):
        topics = ("clicks",)
        on_error = dead_letter("dead")

        def handle_record(self, record: Record, term: Term) -> None:
            raise ValueError("no")

    driven = drive(Failing(), [row(0, SENDERS[0])])
    (span,) = spans("process")
    assert span.status.status_code is StatusCode.ERROR
    (letter,) = driven.dead_letters
    headers = dict(letter.record.headers)
    assert headers["traceparent"].decode() == SENDERS[0]  # the record's own, for a replay
    failed_in = headers["leaderq-dead-traceparent"].decode()
    assert int(failed_in.split("-")[2], 16) == span.context.span_id


def test_terms_and_stages_are_spans_and_errors_mark_them(spans: Spans) -> None:
    bus, who = events.EventBus(), ("c", "a")
    end = tracing.follow(bus, *who)
    bus.publish(events.TermBegan("other", "a", 1, True))  # which is followed elsewhere
    bus.publish(events.TermBegan(*who, 7, True))
    for stage in events.Stage:
        bus.publish(events.StageBegan(*who, 7, stage))
        if stage is events.Stage.EXECUTION:
            bus.publish(events.CareerError(*who, 7, stage.value, ValueError("no")))
            bus.publish(events.TermEnding(*who, 7, Reason.FAILED))
    bus.publish(events.TermEnded(*who, 7, Reason.FAILED, True))
    (term,) = spans("term")
    stages = [*spans("inauguration"), *spans("execution"), *spans("hand-over")]
    assert [one.parent.span_id for one in stages] == [term.context.span_id] * 3
    assert term.parent is None
    failed = [one.status.status_code is StatusCode.ERROR for one in (term, *stages)]
    assert failed == [True, False, True, False]
    assert term.attributes["leaderq.reason"] == Reason.FAILED.value
    assert (term.attributes["leaderq.term"], term.attributes["leaderq.unclean"]) == (7, True)
    assert [event.name for event in term.events] == ["exception", "term_ending"]
    bus.publish(events.TermBegan(*who, 8, False))
    bus.publish(events.StageBegan(*who, 8, events.Stage.EXECUTION))
    end()  # what is not told to end is ended by who stops to follow
    assert [one.name for one in spans()[-2:]] == ["execution c", "term c"]
    assert "leaderq.reason" not in spans("term")[1].attributes


class TakingSink(KafkaSink):
    def __init__(self) -> None:
        super().__init__("nowhere:1", "out")
        self.taken: list[Any] = []

    def hand_over(self, batch: Sequence[Any], timeout_s: float) -> Callable[[], BatchOutcome]:
        self.taken += map(self._message, batch)
        return BatchOutcome


def test_a_buffered_producer_takes_the_current_context_to_its_kafka_sink(spans: Spans) -> None:
    sink, sender = TakingSink(), SENDERS[0].encode()
    with closing(BufferedProducer(sink, name="p")) as producer:
        producer.send(b"outside of any span")
        with trace.get_tracer("test").start_as_current_span("around") as around:
            producer.send((b"k", b"v"))
            future = producer.submit((b"k", b"w", [("by", b"anna")]))
            asyncio.run(producer.asend(b"x"))
            producer.send((b"k", b"y", [("traceparent", sender)]))
        future.result(60)
        producer.flush(60)
    outside, *inside, own = sink.taken
    assert list(outside.headers) == []
    assert [one.value for one in inside] == [b"v", b"w", b"x"]
    sent = spans("send out")
    assert {one.parent.span_id for one in sent} == {around.get_span_context().span_id}
    assert [carried(one.headers) for one in inside] == [one.context.span_id for one in sent]
    assert ("by", b"anna") in inside[1].headers
    assert list(own.headers) == [("traceparent", sender)]


def test_what_a_producer_loses_is_told_as_it_was_sent_without_the_context(spans: Spans) -> None:
    class Refusing(TakingSink):
        def hand_over(self, batch: Sequence[Any], timeout_s: float) -> Callable[[], BatchOutcome]:
            return lambda: BatchOutcome(dict.fromkeys(range(len(batch)), ValueError("no")))

    lost: list[Lost] = []
    with (
        trace.get_tracer("test").start_as_current_span("around"),
        closing(BufferedProducer(Refusing(), name="p", dropped_listener=lost.append)) as producer,
    ):
        producer.send((b"k", b"v"))
        producer.send(["no record"])
        producer.flush(60)
    assert [one.request for one in lost] == [(b"k", b"v"), ["no record"]]


class Untold(ValueError):
    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_error_that_is_its_own_cause_or_has_no_text_leaves_the_handler_as_it_is(spans):
    one, other = ValueError("no"), ValueError("because")
    one.__cause__, other.__cause__ = other, one
    for error in (one, Untold()):
        with pytest.raises(ValueError) as raised, tracing.of_records([row(0)], a_term(1), "g", ()):
            raise error
        assert raised.value is error
    assert tracing.carried_by(one) == tracing.carried_by(other) != {}
    said = [span.status.description for span in spans("process")]
    assert said == ["ValueError: no", "Untold, which cannot be told: RuntimeError"]


@pytest.mark.parametrize("error", [ValueError("no"), Untold()])
def test_a_tick_is_a_span_that_is_current_while_it_runs(spans: Spans, error: Exception) -> None:
    bus, who = events.EventBus(), ("c", "a", 7, "nightly", "2026-11-27T02:00")
    tracing.follow(bus, *who[:2])
    bus.publish(events.TickBegan(*who, 1, 2, 0.5))
    inside = trace.get_current_span().get_span_context()
    bus.publish(events.TickEnded(*who, "failed", 1.0, error))
    assert not trace.get_current_span().get_span_context().is_valid
    bus.publish(events.TickEnded(*who[:-1], "earlier", "lost", 0.0, None))  # of an earlier leader
    (tick,) = spans("tick")
    assert (tick.name, tick.context) == ("tick nightly", inside)
    assert tick.attributes["leaderq.outcome"] == "failed"
    assert tick.attributes["leaderq.tick.missed"] == 2
    assert tick.status.status_code is StatusCode.ERROR


def test_off_makes_no_spans_and_changes_no_headers() -> None:
    exporter().clear()
    tracing.stop()
    (message,) = drive(Sending(), [row(0, SENDERS[0])]).produced
    assert list(message.headers) == []
    assert exporter().get_finished_spans() == ()
