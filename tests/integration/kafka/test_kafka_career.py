"""A career drains a real topic: in order, committed batch by batch, over changes of leadership."""

from __future__ import annotations

import ctypes
import threading
import time
from collections import defaultdict
from datetime import datetime
from typing import Any

import pytest

from leaderq.errors import OffsetOutOfRange
from leaderq.kafka import Record
from leaderq.kafka.topics import end_offsets
from leaderq.running import UnitAbandoned
from leaderq.testing import eventually


def in_order(records: list[Record]) -> bool:
    by_partition: dict[int, list[int]] = defaultdict(list)
    for record in records:
        by_partition[record.partition].append(record.offset)
    return all(
        offsets == list(range(offsets[0], offsets[0] + len(offsets)))
        for offsets in by_partition.values()
    )


def test_every_record_is_handled_once_and_in_order_within_its_partition(drive, feed):
    values = feed(0, 1000)
    leader = drive(max_records=150).begin()
    leader.run_until(lambda: len(leader.career.seen) >= 1000)
    assert sorted(leader.career.values(), key=int) == values
    assert in_order(leader.career.seen)


@pytest.mark.parametrize("delay_us", range(0, 3000, 750))
def test_a_unit_may_be_abandoned_at_any_instant_of_the_hand_over(drive, feed, delay_us):
    values = feed(0, 200)
    leader = drive(max_records=5).begin()
    stop = threading.Event()

    def units() -> None:
        try:
            while not stop.is_set():
                leader.career.execute(leader.term)
        except UnitAbandoned:
            pass

    thread = threading.Thread(target=units)
    thread.start()
    eventually(lambda: len(leader.career.seen) > 10, timeout_s=30)
    until = time.perf_counter() + delay_us / 1e6
    while time.perf_counter() < until:
        pass
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident or 0), ctypes.py_object(UnitAbandoned)
    )
    stop.set()
    thread.join(30)
    assert not thread.is_alive()
    leader.end()
    leader.begin()
    leader.run_until(lambda: set(leader.career.values()) == set(values))
    assert len(leader.career.seen) <= 200 + 5


def test_an_offset_that_is_gone_stops_the_leader_instead_of_skipping(
    drive, feed, kafka_broker, four_partitions
):
    import kafka

    feed(0, 100)
    leader = drive(max_records=10).begin()
    leader.career.execute(leader.term)
    leader.end()
    admin: Any = kafka.KafkaAdminClient(bootstrap_servers=kafka_broker.address)
    ends = end_offsets(kafka_broker.address, four_partitions)
    admin.delete_records({kafka.TopicPartition(four_partitions, n): end for n, end in ends.items()})
    admin.close()
    leader.begin()
    with pytest.raises(OffsetOutOfRange, match=four_partitions):
        leader.run_until(lambda: False)


@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_a_new_group_begins_at_the_time_that_its_career_says(drive, feed, client):
    feed(0, 40)
    time.sleep(0.02)  # records of a later millisecond
    began = datetime.now()
    time.sleep(0.02)
    values = feed(40, 80)
    leader = drive(client=client, begin_at=began, auto_offset_reset="none").begin()
    leader.run_until(lambda: len(leader.career.seen) >= 40)
    assert sorted(leader.career.values(), key=int) == values
