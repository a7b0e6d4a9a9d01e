"""What lies on a topic, read by kafka-python itself."""

from __future__ import annotations

from collections.abc import Callable

from leaderq.kafka.record import Record
from leaderq.kafka.topics import end_offsets

Read = Callable[[], list[Record]]


def read_all(address: str, topic: str, *, isolation: str = "read_uncommitted") -> list[Record]:
    """What lies there, in order within each partition; of ``read_committed`` what is stable."""
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
        if isolation == "read_committed":
            stable = end_offsets(address, topic)
            ends = {place: stable[place.partition] for place in places}
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
