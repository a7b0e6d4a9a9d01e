"""Traces through a real Kafka: the context travels in headers, read by both clients."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from driving import Recorder
from traces import linked
from traces import spans as spans

from leaderq.kafka import Record
from leaderq.kafka.topics import create_topics
from leaderq.term import Term


class Passing(Recorder):
    def handle(self, records: Sequence[Record], term: Term) -> None:
        super().handle(records, term)
        for record in records:
            self.produce(f"{record.topic}-out", record.value, key=record.key)


@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_every_record_that_was_sent_is_linked_once_by_whoever_handles_it(
    client, spans, drive, feed, kafka_broker, four_partitions
):
    create_topics(kafka_broker.address, {f"{four_partitions}-out": 2})
    feed(0, 100)
    first = drive(Passing, offsets="transaction", client=client, max_records=30).begin()
    first.run_until(lambda: len(first.career.seen) == 100)
    first.end()
    sent = Counter(span.context.span_id for span in spans("send"))
    handled = [span for span in spans("process") if span.attributes["leaderq.career"]]
    assert len(sent) == 100
    assert not any(span.links for span in handled)  # nobody has traced what was fed
    assert {span.parent.span_id for span in spans("send")} == {
        span.context.span_id for span in handled
    }
    out = f"{four_partitions}-out"
    second = drive(Recorder, topics=(out,), group=out, client=client, max_records=30).begin()
    second.run_until(lambda: len(second.career.seen) == 100)
    second.end()
    links = Counter(one for span in spans(f"process {out}") for one in linked(span))
    assert links == sent
