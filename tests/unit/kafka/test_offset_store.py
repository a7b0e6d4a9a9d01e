"""Offsets that the user keeps: what is believed of them, and for how long."""

from __future__ import annotations

from typing import Any, cast

import pytest
from terms import open_term

from leaderq.errors import ConfigurationError
from leaderq.kafka.clients.consumer import ConsumerClient, KafkaAway
from leaderq.kafka.record import Partition
from leaderq.kafka.stores.offset_store import ExternalOffsets, checked_offsets

NO_CONSUMER = cast("ConsumerClient", None)


def test_nothing_is_loaded_before_the_users_code_has_answered_for_this_term() -> None:
    store = ExternalOffsets(lambda term: {("t", 0): term.number})
    with pytest.raises(KafkaAway, match="term 1"):
        store.load(NO_CONSUMER, open_term(1), 1.0)
    store.begin(open_term(1))
    assert store.load(NO_CONSUMER, open_term(1), 1.0) == {Partition("t", 0): 1}
    with pytest.raises(KafkaAway, match="term 2"):
        store.load(NO_CONSUMER, open_term(2), 1.0)


def test_a_drain_made_again_within_a_term_reads_on_after_what_was_committed_since() -> None:
    store = ExternalOffsets(lambda term: {("t", 0): 5, ("t", 1): 7})
    store.begin(open_term(7))
    assert store.commit(NO_CONSUMER, open_term(7), {Partition("t", 0): 9}).done(0)
    assert store.load(NO_CONSUMER, open_term(7), 1.0) == {
        Partition("t", 0): 9,
        Partition("t", 1): 7,
    }


def test_the_next_term_asks_again_and_forgets_what_the_former_committed() -> None:
    store = ExternalOffsets(lambda term: {("t", 0): 5})
    store.begin(open_term(1))
    store.commit(NO_CONSUMER, open_term(1), {Partition("t", 0): 9})
    store.close()
    store.begin(open_term(2))
    store.commit(NO_CONSUMER, open_term(1), {Partition("t", 0): 100})
    assert store.load(NO_CONSUMER, open_term(2), 1.0) == {Partition("t", 0): 5}


@pytest.mark.parametrize(
    ("answer", "named"),
    [
        (None, "NoneType"),
        ([(("t", 0), 1)], "list"),
        ({"t": 1}, "'t'"),
        ({("t", "0"): 1}, "('t', '0')"),
        ({("t", -1): 1}, "('t', -1)"),
        ({("t", 0, 1): 1}, "('t', 0, 1)"),
        ({("t", 0): -1}, "-1"),
        ({("t", 0): None}, "None"),
        ({("t", 0): 1.5}, "1.5"),
        ({("t", 0): True}, "True"),
    ],
)
def test_an_unusable_answer_is_refused_with_the_value_and_the_place(
    answer: Any, named: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        checked_offsets(answer, "Clicks")
    assert named in str(refused.value)
    assert "'load_offsets' of Clicks" in str(refused.value)
