"""Before a career reads: the gate, the coordinator, and what librdkafka's errors mean."""

from __future__ import annotations

from collections.abc import Callable

import confluent_kafka
import pytest
from kafka import errors as native
from terms import open_term

from leaderq.config import KafkaSecurity
from leaderq.errors import AccessRefused, Deposed, KafkaError
from leaderq.kafka.clients.confluent_connection import ConfluentConnection
from leaderq.kafka.clients.consumer import ConsumerSettings, KafkaAway, until_answered
from leaderq.kafka.clients.kafka_python_connection import errors_translated
from leaderq.kafka.clients.kafka_python_consumer import KafkaPythonConsumer
from leaderq.kafka.consuming.term_consumer import JoinGate
from leaderq.term import Reason


def test_a_gate_that_is_shut_refuses_although_the_lease_lasts() -> None:
    gate = JoinGate(open_term(7))
    gate.is_shut = True
    with pytest.raises(Deposed):
        gate()


def test_the_gate_refuses_when_the_term_is_over() -> None:
    over = open_term(7)
    gate = JoinGate(over)
    over.wind_up(Reason.LEASE)
    over.close()
    with pytest.raises(Deposed):
        gate()


def test_the_assignor_that_is_asked_before_each_join_asks_the_gate() -> None:
    consumer = KafkaPythonConsumer(ConsumerSettings("nowhere:9092", ("t",), "g", "m"))
    assignor = consumer._assignor
    with pytest.raises(KafkaError, match="kept warm"):
        assignor.metadata({"t"})
    gate = JoinGate(open_term(7))
    consumer._allowed = gate
    assignor.metadata({"t"})
    gate.is_shut = True
    with pytest.raises(Deposed):
        assignor.metadata({"t"})


# -- asking again while nobody can answer: a broker that has just started does not coordinate its


class Broker:
    """Refuses with ``error`` so many times, then answers."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error = error
        self.left = times
        self.asked = 0

    def ask(self) -> str:
        self.asked += 1
        if self.left:
            self.left -= 1
            raise self.error
        return "answer"


def once_it_answers(ask: Callable[[], str], timeout_s: float) -> str:
    def asked() -> str:
        with errors_translated("asking for offsets", "somewhere:9092"):
            return ask()

    return until_answered(asked, timeout_s)


@pytest.mark.parametrize(
    "error",
    [
        native.CoordinatorNotAvailableError(),
        native.NotCoordinatorError(),
        native.CoordinatorLoadInProgressError(),
    ],
)
def test_it_is_asked_again_until_the_group_has_a_coordinator(error: Exception) -> None:
    broker = Broker(error, times=2)
    assert once_it_answers(broker.ask, timeout_s=60) == "answer"
    assert broker.asked == 3


def test_at_the_end_of_the_time_the_last_refusal_is_raised_with_its_cause() -> None:
    broker = Broker(native.CoordinatorNotAvailableError(), times=10**6)
    with pytest.raises(KafkaAway, match="asking for offsets at Kafka 'somewhere:9092'") as raised:
        once_it_answers(broker.ask, timeout_s=0.2)
    assert raised.value.__cause__ is broker.error


def test_a_refusal_that_asking_again_cannot_change_is_raised_at_once() -> None:
    broker = Broker(native.GroupAuthorizationFailedError(), times=1)
    with pytest.raises(AccessRefused):
        once_it_answers(broker.ask, timeout_s=60)
    assert broker.asked == 1


# -- what librdkafka's errors mean to a term

CODES = {confluent_kafka.KafkaError(code).name(): code for code in range(-200, -100)}


@pytest.mark.parametrize("name", ["_TRANSPORT", "_ALL_BROKERS_DOWN", "_DESTROY_BROKER"])
def test_a_broker_that_goes_passes_by_itself(name: str) -> None:
    connection = ConfluentConnection("kafka:9092", KafkaSecurity())
    error = connection.error(confluent_kafka.KafkaError(CODES[name]), "committing")
    assert isinstance(error, KafkaAway)
