"""Traces of handlers of queues: messages carry their context in headers, items in their notes."""

from __future__ import annotations

from consumption import LOCKING, PATH, Flaky, consuming
from opentelemetry import trace
from opentelemetry.trace import StatusCode
from traces import linked
from traces import spans as spans

from leaderq.dyno import DynoQueue, Message, Worker
from leaderq.queues import DistributedQueue, Retry
from leaderq.queues.admin import ItemLetters
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.testing import eventually


def test_a_message_is_linked_to_what_pushed_it(session, spans):
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


@LOCKING
def test_an_item_is_linked_to_what_put_it_also_when_it_comes_back_from_the_dead_letters(
    session, spans, lock
):
    request_span = trace.get_tracer("test").start_as_current_span("request")
    with DistributedQueue(session, PATH) as queue, request_span:
        queue.put(b"bad")
    (sent,), (request,) = spans(f"send {PATH}"), spans("request")
    assert sent.parent.span_id == request.context.span_id
    dead = ItemLetters(session, QueuePaths(PATH))
    flaky = Flaky(2)
    with consuming(session, flaky, lock=lock, retry=Retry(attempts=2, first_s=0.0)):
        eventually(lambda: dead.names())
        assert dead.requeue(dead.browse()).moved == 1
        eventually(lambda: len(spans(f"process {PATH}")) == 3)
    for span in spans(f"process {PATH}"):
        assert linked(span) == [sent.context.span_id]
        assert span.parent is None
