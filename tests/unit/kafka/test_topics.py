"""Asking again while nobody can answer: a broker that has just started does not coordinate its
groups yet.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from kafka import errors as native

from leaderq.errors import AccessRefused
from leaderq.kafka.clients.consumer import KafkaAway, until_answered
from leaderq.kafka.clients.kafka_python_connection import errors_translated


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


def test_it_is_asked_once_even_without_any_time() -> None:
    assert (
        once_it_answers(Broker(native.NotCoordinatorError(), times=0).ask, timeout_s=0.0)
        == "answer"
    )


def test_a_refusal_that_asking_again_cannot_change_is_raised_at_once() -> None:
    broker = Broker(native.GroupAuthorizationFailedError(), times=1)
    with pytest.raises(AccessRefused):
        once_it_answers(broker.ask, timeout_s=60)
    assert broker.asked == 1
