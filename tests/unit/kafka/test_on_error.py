"""The policies for records that cannot be handled: what is accepted, what is refused and how, and
what is decided.
"""

from __future__ import annotations

import math

import pytest

from leaderq.errors import (
    ConfigurationError,
    ConnectionLost,
    Deposed,
    KafkaError,
    KafkaFenced,
    NodeExists,
)
from leaderq.kafka.clients.consumer import KafkaAway
from leaderq.kafka.handling.on_error import (
    Ending,
    ProcessDied,
    RetryAfter,
    dead_letter,
    dead_letter_topic,
    is_about_records,
    policy,
    retry,
    skip,
)
from leaderq.running import UnitAbandoned
from leaderq.term import Reason


def verdicts(value: object, attempts: int) -> list[object]:
    return [policy(value, "Billing").decision(attempt) for attempt in range(1, attempts + 1)]


@pytest.mark.parametrize("value", ["skip", skip()])
def test_skip_passes_over_at_once_and_after_three_deaths(value: object) -> None:
    assert verdicts(value, 1) == [Ending.SKIP]
    assert policy(value, "Billing").deaths == 3


def test_a_dead_letter_goes_to_the_topic_named_or_to_the_careers_own() -> None:
    assert (
        verdicts(dead_letter("graveyard", deaths=1), 1)
        == verdicts(dead_letter(), 1)
        == [Ending.DEAD_LETTER]
    )
    assert policy(dead_letter("graveyard"), "Billing").topic == "graveyard"
    assert policy(dead_letter(), "Billing").topic is None
    assert policy(dead_letter(deaths=1), "Billing").deaths == 1
    assert dead_letter_topic("billing") == "billing-dead"


def test_retry_waits_twice_as_long_each_time_up_to_its_cap_then_does_what_it_ends_in() -> None:
    assert verdicts(retry(4, backoff_s=1, max_backoff_s=3, then=dead_letter()), 5) == [
        RetryAfter(1.0),
        RetryAfter(2.0),
        RetryAfter(3.0),
        RetryAfter(3.0),
        Ending.DEAD_LETTER,
    ]
    assert verdicts(retry(1), 2) == [RetryAfter(0.5), Ending.RAISE]
    assert policy(retry(1, then=skip(deaths=7)), "Billing").deaths == 7
    assert policy(retry(1), "Billing").deaths is None


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (None, "is None, which is not a policy"),
        ("ignore", "'ignore'"),
        ("dead_letter", "dead_letter()"),
        (3, "is 3"),
        (RetryAfter, "is <class"),
        (ValueError("x"), "ValueError"),
        (skip, "call it: skip()"),
        (dead_letter, "call it: dead_letter()"),
        (retry, "call it: retry(3)"),
        (retry(0), "retry(n=0)"),
        (retry(-1), "retry(n=-1)"),
        (retry(True), "retry(n=True)"),
        (retry(1.5), "retry(n=1.5)"),  # type: ignore[arg-type]
        (retry("3"), "retry(n='3')"),  # type: ignore[arg-type]
        (retry(1, backoff_s=-0.1), "retry(backoff_s=-0.1)"),
        (retry(1, backoff_s=math.nan), "retry(backoff_s=nan)"),
        (retry(1, backoff_s="1"), "retry(backoff_s='1')"),  # type: ignore[arg-type]
        (retry(1, max_backoff_s=math.inf), "retry(max_backoff_s=inf)"),
        (retry(1, backoff_s=60), "larger max_backoff_s"),
        (retry(1, then=retry(1)), "more attempts"),  # type: ignore[arg-type]
        (retry(1, then=None), "'then' of retry in on_error of Billing is None"),  # type: ignore[arg-type]
        (retry(1, then=skip), "call it: skip()"),  # type: ignore[arg-type]
        (retry(1, then=skip(deaths=0)), "skip(deaths=0)"),
        (skip(deaths=0), "skip(deaths=0)"),
        (dead_letter(deaths=None), "dead_letter(deaths=None)"),  # type: ignore[arg-type]
        (dead_letter(""), "dead_letter(topic='')"),
        (dead_letter(".."), "not the name of a Kafka topic"),
        (dead_letter("a b"), "not the name of a Kafka topic"),
        (dead_letter("a" * 250), "not the name of a Kafka topic"),
        (dead_letter(b"x"), "not the name of a Kafka topic"),  # type: ignore[arg-type]
    ],
)
def test_what_is_no_policy_is_refused_with_value_place_and_remedy(value: object, says: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        policy(value, "Billing")
    assert says in str(refused.value)
    assert "on_error of Billing" in str(refused.value)


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(ConfigurationError) as refused:
        policy(retry(0, backoff_s=-1, then=dead_letter("a b", deaths=0)), "Billing")
    assert len(refused.value.problems) == 4


def test_errors_about_leadership_and_servers_are_never_blamed_on_a_record() -> None:
    for error in (
        Deposed(term=3, reason=Reason.LEASE),
        KafkaAway("away"),
        KafkaFenced("fenced"),
        ConnectionLost("lost"),
        ConfigurationError("wrong"),
        UnitAbandoned(),
        KeyboardInterrupt(),
        SystemExit(1),
    ):
        assert not is_about_records(error)
    for blamed in (ValueError("x"), NodeExists("there"), KafkaError("too large"), ProcessDied(2)):
        assert is_about_records(blamed)
