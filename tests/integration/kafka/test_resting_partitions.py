"""A record that is to be tried again later, on a real broker: the other partitions are read on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from driving import Driver, Recorder
from producer_contract import Output

from leaderq.kafka import KafkaLeaderCareer, Partition, Record, retry
from leaderq.kafka.topics import committed, end_offsets, produce
from leaderq.term import Term

Drive = Callable[..., Driver]
LATER_S = 1.0


class Stubborn(Recorder):
    """Fails at the first record of partition 0 some times."""

    output: Output
    meanwhile: Callable[[], object]
    left = 2

    def handle_record(self, record: Record, term: Term) -> None:
        self.seen.append(record)
        if self.offsets == "transaction":
            self.produce(self.output.topic, record.value)
        if record.partition == 0 and record.offset == 0 and self.left:
            self.left -= 1
            if self.left == 1:
                self.meanwhile()
            raise ValueError("not yet")

    handle = KafkaLeaderCareer.handle


@pytest.mark.parametrize(
    ("client", "offsets", "workers"),
    [("kafka-python", "transaction", 1), ("confluent", "kafka", 4)],
)
def test_one_records_retries_hold_up_its_own_partition_only(
    drive: Drive,
    kafka_broker: Any,
    four_partitions: str,
    client: str,
    offsets: str,
    workers: int,
) -> None:
    def feed(first: int, last: int) -> dict[Partition, int]:
        produce(
            kafka_broker.address,
            four_partitions,
            ((b"k%d" % (n % 16), b"%d" % n) for n in range(first, last)),
        )
        return {
            Partition(four_partitions, n): at
            for n, at in end_offsets(kafka_broker.address, four_partitions).items()
        }

    feed(0, 200)
    ends: dict[Partition, int] = {}
    output = Output(kafka_broker.address, f"{four_partitions}-out")
    leader = drive(
        Stubborn,
        client=client,
        offsets=offsets,
        workers=workers,
        max_records=20,
        on_error=retry(3, backoff_s=LATER_S),
        output=output,
        meanwhile=lambda _career: ends.update(feed(200, 400)),
    ).begin()
    leader.run_until(lambda: bool(ends) and leader.career._assembly.consumer.loaded == ends)
    stored = {at.number: end for at, end in ends.items()}
    assert committed(kafka_broker.address, four_partitions, four_partitions) == stored
    handled: list[Record] = leader.career.seen
    tries = [at for at, record in enumerate(handled) if (record.partition, record.offset) == (0, 0)]
    between = {record.value for record in handled[tries[0] : tries[-1]]}
    assert len(tries) == 3
    assert len(between) > 60  # more than the batch in hand and the one read ahead
    assert any(int(value) >= 200 for value in between)  # fed after the first try
    if offsets == "transaction":
        assert sorted(output.read(), key=int) == [b"%d" % n for n in range(400)]
    for number in range(4):
        order = [record.offset for record in handled if record.partition == number]
        assert list(dict.fromkeys(order)) == list(range(ends[Partition(four_partitions, number)]))
        if number == 0:
            assert order[:3] == [0, 0, 0]
