"""What lies on a topic, read by kafka-python itself, and in a queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leaderq.kafka.record import Record

Read = Callable[[], list[Record]]


def read_all(address: str, topic: str, *, isolation: str = "read_uncommitted") -> list[Record]:
    """What lies there; of ``read_committed`` what is stable once all transactions have ended."""
    # after leaderq.kafka, which keeps a warning of this import quiet
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=address, isolation_level=isolation)
    try:
        places = [
            TopicPartition(topic, number)
            for number in sorted(consumer.partitions_for_topic(topic) or ())
        ]
        consumer.assign(places)
        consumer.seek_to_beginning(*places)
        ends = consumer.end_offsets(places)
        found: list[Record] = []
        while any(consumer.position(place) < ends[place] for place in places):
            for records in consumer.poll(timeout_ms=500, max_records=10_000).values():
                found += [
                    Record(r.topic, r.partition, r.offset, r.timestamp, r.key, r.value, r.headers)
                    for r in records
                ]
        return found
    finally:
        consumer.close()


def taken(queue: Any, count: int) -> list[Any]:
    found = []
    for _ in range(count):
        with queue.take(30) as item:
            found.append(item.value)
    return found
