"""What production topics use is read with both clients: every codec, and nothing altered."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import kafka.codec
import pytest
from confluent_kafka import Producer

from leaderq.errors import LeaderqError, MissingPiece
from leaderq.kafka.topics import create_topics, produce

CODECS = ("gzip", "snappy", "lz4", "zstd")


@pytest.fixture
def compressed(kafka_broker: Any, topic_name: str) -> Callable[[str], str]:
    """Make a topic of records compressed so, some of them larger than a codec's block."""

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
