"""Traces of handlers of queues: messages carry their context in headers, items carry none."""

from __future__ import annotations

from opentelemetry import trace
from opentelemetry.trace import StatusCode
from traces import Spans, linked
from traces import spans as spans

from leaderq.dyno import DynoQueue, Message, Worker
from leaderq.queues import DistributedQueue
from leaderq.testing import eventually
from leaderq.zookeeper import Session


def test_a_message_is_linked_to_what_pushed_it(session: Session, spans: Spans) -> None:
    current = []

    def work(delivery: object) -> None:
        current.append(trace.get_current_span().get_span_context())
        if len(current) == 2:
            raise ValueError("no")

    with DynoQueue(session, "/d") as queue:
        with trace.get_tracer("test").start_as_current_span("request") as request:
            queue.push([Message(payload=b"a", headers={"by": "anna"}), Message(payload=b"b")])
        sent = spans("send /d")
        assert {one.parent.span_id for one in sent} == {request.get_span_context().span_id}
        with Worker(queue, work):
            eventually(lambda: len(spans("process /d")) >= 2)
    first, second = spans("process /d")[:2]
    ids = {one.context.span_id for one in sent}
    assert len(ids) == 2
    assert {*linked(first), *linked(second)} == ids
    assert len(first.links) == len(second.links) == 1
    assert current[:2] == [first.context, second.context]
    assert second.status.status_code is StatusCode.ERROR


def test_items_are_handled_within_a_span_that_is_linked_to_nothing(
    session: Session, spans: Spans
) -> None:
    seen: list[list[bytes]] = []
    with DistributedQueue(session, "/q", consumer=lambda value: seen.append([value])) as queue:
        queue.put(b"a")
        queue.put(b"b")
        eventually(lambda: len(spans("process /q")) == 2)
    assert sorted(seen) == [[b"a"], [b"b"]]
    assert not any(span.links or span.parent for span in spans())
