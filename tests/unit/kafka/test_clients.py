"""What both libraries' clients make of messages, of errors, and of being asked for nothing."""

from __future__ import annotations

import socket
from typing import Any
from unittest import mock

import confluent_kafka
import pytest
from kafka import errors as native
from kafka.consumer.fetcher import ConsumerRecord

from leaderq import errors
from leaderq.config import KafkaSecurity
from leaderq.errors import AccessRefused, ConfigurationError, KafkaError, ServersUnreachable
from leaderq.kafka.clients import kafka_python_consumer, private_api
from leaderq.kafka.clients.confluent_connection import ConfluentConnection
from leaderq.kafka.clients.confluent_consumer import ConfluentConsumer
from leaderq.kafka.clients.confluent_producer import ConfluentProducer
from leaderq.kafka.clients.confluent_record import by_partition
from leaderq.kafka.clients.consumer import ConsumerSettings, KafkaAway
from leaderq.kafka.clients.kafka_python_connection import tls_context, translated
from leaderq.kafka.clients.producer import Message, ProducerSettings, checked
from leaderq.kafka.record import Partition

CODES = {confluent_kafka.KafkaError(code).name(): code for code in range(-200, 100)}


def librdkafkas(name: str) -> Any:
    return confluent_kafka.KafkaError(CODES[name])


@pytest.mark.parametrize(
    ("odd", "told"),
    [
        ({"partition": 1.0}, r"partition is 1\.0, not a whole number"),
        ({"partition": "1"}, "partition is '1', not a whole number"),
        ({"partition": 1 << 31}, "partition is 2147483648, not a whole number of 31 bits"),
        ({"partition": -1}, "leave it out"),
        ({"timestamp_ms": 1.5}, r"timestamp_ms is 1\.5, not a whole number"),
        ({"timestamp_ms": 1 << 63}, "timestamp_ms .* of 63 bits"),
        ({"headers": [5]}, "header 5 is not a pair of str and bytes"),
        ({"headers": [("a", b"1", 2)]}, "is not a pair"),
        ({"headers": [("a", "1")]}, "is not a pair"),
        ({"headers": [("\udcff", b"1")]}, "surrogates not allowed"),
        ({"headers": 5}, "not iterable"),
        ({"value": "text"}, "value is str, not bytes"),
        ({"topic": ""}, "its topic must be a name"),
        ({"value": None}, "neither key nor value"),
    ],
)
def test_what_no_client_could_send_is_refused_where_it_is_made(odd, told):
    with pytest.raises(KafkaError, match=told):
        checked(Message(**{"topic": "t", "value": b"v", **odd}))


def test_a_tls_socket_that_its_closed_client_has_forgotten_closes_itself():
    ours, theirs = socket.socketpair()
    context = tls_context(KafkaSecurity())
    context.check_hostname = False
    handshaking = context.wrap_socket(ours, do_handshake_on_connect=False)
    del handshaking
    with theirs:
        assert theirs.recv(1) == b""


def test_headers_are_sent_whatever_they_come_in():
    pairs = [("a", b"1"), ("b", b"2")]
    for headers in (pairs, tuple(pairs), iter(pairs), dict(pairs).items()):
        assert checked(Message("t", b"v", headers=headers)).headers == tuple(pairs)
    assert checked(Message("t", b"v", headers=None)).headers == ()  # type: ignore[arg-type]
    # As of a record that is passed on: Java writes values that are null. A client takes no lists.
    passed_on: Any = [["a", b"1"], ("b", None)]
    assert checked(Message("t", b"v", headers=passed_on)).headers == (("a", b"1"), ("b", b""))
    whole = Message("t", b"v", b"k", (), (1 << 31) - 1, (1 << 63) - 1)
    assert checked(whole) == whole


def test_a_record_is_equal_whatever_client_read_it():
    message = confluent_kafka.Message("t", 1, 2, b"k", b"v", timestamp=(1, 3))
    (theirs,) = by_partition([message])[Partition("t", 1)]
    row = ConsumerRecord("t", 1, 7, 2, 3, 0, b"k", b"v", [], None, 1, 1, 1)
    assert theirs == private_api.seen_as(kafka_python_consumer._Seen, [row])[0]


def test_why_nobody_answers_is_said_when_opening():
    producer = ConfluentProducer(ProducerSettings("127.0.0.1:1", open_timeout_s=0.2))
    with pytest.raises(ServersUnreachable, match="Connection refused"):
        producer.open()


def test_a_refusal_that_was_overcome_explains_no_later_silence(at):
    connection = ConfluentConnection("kafka:9092", KafkaSecurity())
    connection._told(librdkafkas("_AUTHENTICATION"))
    late = librdkafkas("_TIMED_OUT")
    at[0] += 9.9
    assert isinstance(connection.error(late, "committing"), AccessRefused)
    at[0] += 0.2
    assert isinstance(connection.error(late, "committing"), KafkaAway)
    assert connection.refusal is None


@pytest.mark.parametrize("name", ["_TRANSPORT", "_ALL_BROKERS_DOWN", "_DESTROY_BROKER"])
def test_a_broker_that_goes_passes_by_itself(name):
    connection = ConfluentConnection("kafka:9092", KafkaSecurity())
    assert isinstance(connection.error(librdkafkas(name), "committing"), KafkaAway)


@pytest.mark.parametrize("options", [{"stats_cb": 5}, {"linger.ms": "many"}, {"nonsense": 1}])
def test_an_option_that_it_cannot_use_is_the_users_mistake(options):
    producer = ConfluentProducer(ProducerSettings("127.0.0.1:1", options=options))
    with pytest.raises(ConfigurationError, match="cannot use an option"):
        producer.open()


@pytest.fixture
def consumer() -> ConfluentConsumer:
    made = ConfluentConsumer(ConsumerSettings("x:9092", ("t",), "g", "m"))
    made._client = mock.Mock(consume=lambda most, wait_s: [])
    return made


def test_a_member_that_holds_no_partition_commits_nothing(consumer):
    """librdkafka would answer with an error, and the term would fail."""
    assert consumer.commit({}, "").done(0.0)
    consumer._client.commit.assert_not_called()


def test_who_is_not_a_member_at_the_moment_has_no_metadata_for_a_transaction(consumer):
    """librdkafka's say generation -1, which means anybody."""
    assert consumer.group_metadata() is None
    consumer._allowed = lambda: None
    consumer._on_assign(consumer._client, [])
    assert consumer.group_metadata() is consumer._client.consumer_group_metadata()
    consumer._on_revoke(consumer._client, [])
    assert consumer.group_metadata() is None


def test_a_position_that_is_gone_is_told_to_whoever_polls_not_to_who_waits_for_a_commit(
    consumer,
):
    where = Partition("t", 0)
    record = confluent_kafka.Message("t", 0, 4, b"k", b"v")
    gone = confluent_kafka.Message("t", 0, error=librdkafkas("_AUTO_OFFSET_RESET"))
    messages = [record, gone]

    def consume(most: int, _wait_s: float) -> list[Any]:
        taken, messages[:] = messages[:most], messages[most:]
        if not messages:
            consumer._on_commit(None, [])  # it is answered when all of them are taken
        return taken

    consumer._client, consumer._held = mock.Mock(consume=consume), frozenset({where})
    consumer.seek({where: 4})
    assert consumer.commit({where: 4}, "").done(60)
    with pytest.raises(errors.OffsetOutOfRange):
        consumer.poll(0.0, 10)
    assert [row.offset for row in consumer.poll(0.0, 10)[where]] == [4]


class _Noted:
    """An offset as confluent-kafka tells one that kafka-python has committed (B27)."""

    topic, partition, offset, leader_epoch, error = "t", 0, 7, -1, None

    @property
    def metadata(self) -> str:
        return b"x\xff".decode()


def test_an_offset_whose_note_is_no_text_is_an_offset(consumer):
    consumer._client = mock.Mock(committed=lambda asked, timeout_s: [_Noted()])
    assert consumer.committed(1.0, [Partition("t", 0)]) == {Partition("t", 0): 7}
    assert consumer.notes == frozenset()


@pytest.mark.parametrize("quote", "'\"")
def test_of_a_refused_request_it_is_told_what_the_broker_says(quote):
    answer = f'topics=[Result(error_code=44, error_message={quote}too many, don"t{quote}, x=0)]'
    error = native.PolicyViolationError(f"Request 'X(y=1)' failed with response 'Z({answer})'.")
    told = str(translated(error, "creating topics", "k:1"))
    assert told == "creating topics at Kafka 'k:1': PolicyViolationError: too many, don\"t"
