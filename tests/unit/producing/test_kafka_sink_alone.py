"""Kafka behind a buffered producer, without a broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from unittest import mock

import confluent_kafka
import pytest

from leaderq.base import clock
from leaderq.errors import ConfigurationError, KafkaError, SinkAway, SinkBroken, UnknownTopic
from leaderq.kafka.clients.confluent_producer import ConfluentProducer
from leaderq.kafka.clients.producer import Message, ProducerClient, ProducerSettings
from leaderq.kafka.sink import KafkaSink

FATAL = confluent_kafka.KafkaError(confluent_kafka.KafkaError._FATAL, "over")


class StubClient(ProducerClient):
    is_done, error = True, None

    def __init__(self, missing: str = "") -> None:
        super().__init__(ProducerSettings("nowhere:1"))
        self.sent, self._missing, self.is_closed = list[Message](), missing, False

    def partitions(self, topic: str) -> int:
        if topic == self._missing:
            raise UnknownTopic(topic)
        return 1

    def send_run(self, messages: Sequence[Message], partition: int, receipts: list[Any]) -> None:
        self.sent += messages
        receipts += [self] * len(messages)

    def failure(self, receipt: Any, topic: str) -> None:
        return None

    def offset(self, receipt: Any) -> int:
        return 0

    def close(self) -> None:
        self.is_closed = True


def test_the_end_of_a_client_is_no_message_s_fault_and_another_client_sends_what_it_had():
    given: list[list[bytes]] = []

    class Silent(ConfluentProducer):
        def open(self, timeout_s: float | None = None) -> None:
            self._counts["t"] = (1, clock.now_s())
            given.append([])

        def _give(self, messages: Any, *_: Any) -> None:
            given[-1].extend(message.value for message in messages)
            if messages[-1].value == b"bad":
                raise confluent_kafka.KafkaException(FATAL)

        def wait(self, receipt: Any, until_s: float) -> None:
            raise AssertionError("nobody is waited for")

    sink = KafkaSink("nowhere:1", "t", client="confluent")
    sink._make = Silent
    first, second = sink.hand_over([b"bad"], 60.0), sink.hand_over([b"behind"], 60.0)
    for outcome in (first(), second()):
        assert (outcome.refused, list(outcome.again)) == ({}, [0])
        assert isinstance(outcome.error, SinkAway)
    sink.hand_over([b"behind"], 60.0)
    assert given == [[b"bad", b"behind"], [b"behind"]]


@pytest.mark.parametrize("client", ["kafka-python", "confluent"])
def test_records_come_in_every_form_and_one_that_cannot_be_a_message_is_refused_alone(client):
    class Rude(tuple[Any, ...]):
        def __len__(self) -> int:
            raise LookupError("no length")

    bad: list[Any] = [
        "\udcff",
        ("\udcff", b"v"),
        (b"k", b"v", [("\udcff", b"x")]),
        Rude(),
        None,
        Message("no topic", b"v"),
        Message("t", b"v", partition=1.0),  # type: ignore[arg-type]
        Message("t", b"v", partition=1),
    ]
    sink = KafkaSink("nowhere:1", "t", client=client)
    stub = sink._client = StubClient()
    assert all(sink.with_context(record) is record for record in bad[:-1])
    good: list[Any] = [(b"k", b"2", iter([("h", b"x")])), "text", ("k", "of texts")]
    good += [Message("u", b"elsewhere"), tuple(Message("", b"as a tuple", b"k", (), 0))]
    outcome = sink.send([b"1", *bad, *good], 1.0)
    assert (list(outcome.refused), list(outcome.again)) == ([*range(1, len(bad) + 1)], [])
    found = sorted((one.value, one.key, one.topic, [*one.headers]) for one in stub.sent)
    assert found == [
        (b"1", None, "t", []),
        (b"2", b"k", "t", [("h", b"x")]),
        (b"as a tuple", b"k", "t", []),
        (b"elsewhere", None, "u", []),
        (b"of texts", b"k", "t", []),
        (b"text", None, "t", []),
    ]
    with pytest.raises(ConfigurationError, match="topic='no topic'"):
        KafkaSink("nowhere:1", "no topic")


@pytest.mark.parametrize("what", ["partitions", "send_run"])
def test_the_failure_of_a_client_refuses_no_record_and_replaces_the_client(what):
    sink = KafkaSink("nowhere:1", "t")
    client = sink._client = StubClient()
    setattr(client, what, mock.Mock(side_effect=KafkaError("it was closed")))
    outcome = sink.send([(b"k", b"1"), (b"k", b"2")], 1.0)
    assert (outcome.refused, list(outcome.again)) == ({}, [0, 1])
    assert isinstance(outcome.error, SinkAway)
    assert client.is_closed


def test_a_topic_that_is_not_there_holds_up_its_own_records_only():
    sink = KafkaSink("nowhere:1", "t")
    client = sink._client = StubClient(missing="gone")
    outcome = sink.send([b"1", Message("gone", b"2"), b"3", Message("gone", b"4")], 1.0)
    assert (outcome.refused, list(outcome.again)) == ({}, [1, 3])
    assert isinstance(outcome.error, SinkBroken)
    assert [message.value for message in client.sent] == [b"1", b"3"]
    assert not client.is_closed
