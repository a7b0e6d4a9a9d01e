"""A career drains a real topic, over changes of leadership, whatever the codec."""

from __future__ import annotations

import ctypes
import threading
import time
from datetime import datetime
from typing import Any

import kafka.codec
import pytest
from confluent_kafka import Producer

from leaderq.errors import LeaderqError, MissingPiece, OffsetOutOfRange
from leaderq.kafka.topics import create_topics, end_offsets, produce
from leaderq.running import UnitAbandoned
from leaderq.testing import eventually


def test_every_record_is_handled_once_and_in_order_within_its_partition(drive, feed):
    values = feed(0, 1000)
    leader = drive(max_records=150).begin()
    leader.run_until(lambda: len(leader.career.seen) >= 1000)
    assert sorted(leader.career.values(), key=int) == values
    for number in range(4):
        offsets = [one.offset for one in leader.career.seen if one.partition == number]
        assert offsets == list(range(len(offsets)))


def test_a_unit_may_be_abandoned_at_any_instant_of_the_hand_over(drive, feed):
    values = feed(0, 1000)
    leader, stop = drive(max_records=5), threading.Event()

    def units() -> None:
        try:
            while not stop.is_set():
                leader.career.execute(leader.term)
        except UnitAbandoned:
            pass

    delays_us = range(0, 3000, 750)
    for delay_us in delays_us:
        leader.begin()
        stop.clear()
        before = len(leader.career.seen)
        thread = threading.Thread(target=units)
        thread.start()
        eventually(lambda more=before + 10: len(leader.career.seen) > more)
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
    assert len(leader.career.seen) <= 1000 + 5 * len(delays_us)


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


CODECS = ("gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def compressed(kafka_broker, topic_name):
    def make(codec: str) -> str:
        topic = f"{topic_name}-{codec}"
        create_topics(kafka_broker.address, {topic: 1})
        producer = Producer(
            {"bootstrap.servers": kafka_broker.address, "compression.type": codec, "linger.ms": 50}
        )
        for n in range(200):
            producer.produce(topic, value=value(n), partition=0)
        assert producer.flush(30) == 0
        return topic

    return make


def value(n: int) -> bytes:
    return b"%d " % n * (50_000 if n % 50 == 0 else 5)


@pytest.mark.parametrize(
    ("client", "codec"), [*(("kafka-python", codec) for codec in CODECS), ("confluent", "zstd")]
)
def test_every_codec_is_read(drive, compressed, client, codec):
    leader = drive(topics=compressed(codec), client=client).begin()
    leader.run_until(lambda: len(leader.career.seen) >= 200)
    assert leader.career.values() == [value(n) for n in range(200)]


def test_a_codec_that_is_not_installed_is_named_with_the_command_that_helps(
    drive, compressed, monkeypatch
):
    monkeypatch.setattr(kafka.codec, "has_lz4", lambda: False)
    leader = drive(topics=compressed("lz4")).begin()
    with pytest.raises(MissingPiece, match=r"lz4.*pip install 'kafka-python\[lz4,snappy,zstd\]'"):
        leader.run_until(lambda: False)


@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_a_value_altered_on_the_brokers_disk_is_never_handled(
    drive, kafka_broker, topic_name, client
):
    topic = f"{topic_name}-altered"
    create_topics(kafka_broker.address, {topic: 1})
    produce(kafka_broker.address, topic, [(None, b"a value that was sent")])
    (path,) = kafka_broker.folder.glob(f"**/{topic}-0/00000000000000000000.log")
    stored = path.read_bytes()
    path.write_bytes(stored.replace(b"was sent", b"was spun"))
    assert path.read_bytes() != stored
    leader = drive(topics=topic, client=client)
    with pytest.raises(LeaderqError, match=r"(?i)corrupt|crc|bad_msg|checksum"):
        leader.begin().run_until(lambda: leader.career.seen)
    assert leader.career.seen == []
