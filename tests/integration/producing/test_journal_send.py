"""``leaderq journal send``: what a dead host's journal holds goes to Kafka, once and in order, and
nothing else.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from reading_topics import Read, read_all

from leaderq.base.exits import ExitCode
from leaderq.cli import main
from leaderq.kafka.sink import KafkaSink
from leaderq.kafka.topics import create_topics
from leaderq.producing import EVERY_ITEM, BufferedProducer, CallableSink
from leaderq.producing.journal import Journal
from leaderq.testing import eventually

KEYS = 7


def left_behind(place: Path, requests: Sequence[Any], confirmed: int) -> None:
    """The journal of a producer whose sink took ``confirmed`` requests, and then nothing more."""
    taken: list[Any] = []

    def take(request: Any) -> None:
        if len(taken) == confirmed:
            raise OSError("gone")
        taken.append(request)

    with BufferedProducer(
        CallableSink(take, each=True), journal=place, persistence=EVERY_ITEM, close_timeout_s=0.0
    ) as producer:
        for request in requests:
            producer.send(request, on_durable=lambda _: None)
        eventually(
            lambda: (
                producer.snapshot().balance.confirmed == confirmed
                and producer.snapshot().sink_error
            )
        )


def send(place: Path, broker: Any, *more: str) -> int:
    return main(["journal", "send", str(place), "--kafka", broker.address, *more])


def numbered(count: int) -> list[tuple[bytes, bytes]]:
    return [(b"key-%d" % (number % KEYS), b"%d" % number) for number in range(count)]


def in_order(stored: Read, numbers: range) -> None:
    for key in range(KEYS):
        found = [int(one.value) for one in stored() if one.key == b"key-%d" % key]
        assert found == [number for number in numbers if number % KEYS == key]


def test_exactly_what_was_not_confirmed_is_sent_in_order_and_once(
    kafka_broker, topic, stored, tmp_path, capfd
):
    left_behind(tmp_path, numbered(3000), confirmed=1000)
    options = "--topic", topic, "--json", "--client", "confluent"
    assert send(tmp_path, kafka_broker, *options) == ExitCode.OK
    told = json.loads(capfd.readouterr().out)
    assert told == {"sent": 2000, "expired": 0, "damaged": 0, "left": 0}
    in_order(stored, range(1000, 3000))
    assert send(tmp_path, kafka_broker, "--topic", topic) == ExitCode.OK
    assert len(stored()) == 2000


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_in_the_middle_of_a_batch_and_done_again_it_sends_exactly_the_rest(
    kafka_broker, topic, stored, tmp_path, monkeypatch, capfd, number
):
    left_behind(tmp_path, numbered(2500), confirmed=0)
    wait, calls = KafkaSink._wait, []

    def interrupted(*args: Any) -> None:
        calls.append(args)
        if len(calls) == 2:  # the batch is on its way
            signal.raise_signal(number)
        wait(*args)

    monkeypatch.setattr(KafkaSink, "_wait", interrupted)
    assert send(tmp_path, kafka_broker, "--topic", topic, "--json") == ExitCode.FORCED
    first = json.loads(capfd.readouterr().out)
    assert (first["sent"] > 0) and (first["left"] > 0)
    assert first["sent"] + first["left"] == 2500
    assert send(tmp_path, kafka_broker, "--topic", topic, "--json") == ExitCode.OK
    assert json.loads(capfd.readouterr().out)["sent"] == first["left"]
    in_order(stored, range(2500))


@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_neither_a_missing_topic_nor_what_is_no_record_for_kafka_costs_anything(
    kafka_broker, topic_name, tmp_path, client
):
    to = "--topic", topic_name, "--client", client
    left_behind(tmp_path, [*numbered(10), {"a": "dict"}, *numbered(20)[10:]], confirmed=0)
    assert send(tmp_path, kafka_broker, *to) != ExitCode.OK
    create_topics(kafka_broker.address, {topic_name: 1})
    assert send(tmp_path, kafka_broker, *to) != ExitCode.OK
    with Journal(tmp_path) as journal:
        (at_fault,) = [str(one.id) for one in journal.read() if b"dict" in one.payload]
        assert journal.depth >= 1
    assert main(["journal", "truncate", str(tmp_path), "--to", at_fault, "--yes"]) == ExitCode.OK
    assert send(tmp_path, kafka_broker, *to) == ExitCode.OK
    values = [int(one.value) for one in read_all(kafka_broker.address, topic_name)]
    assert sorted(values) == list(range(20))
    for key in range(KEYS):
        assert [one for one in values if one % KEYS == key] == list(range(key, 20, KEYS))
