"""What a consumer does with the batch in hand when the store was asked again, and with positions
that are gone: the two decisions of the term's consumer, by themselves.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from leaderq.errors import KafkaError
from leaderq.kafka.consuming.commits import OffsetCommits
from leaderq.kafka.consuming.positions import Positions
from leaderq.kafka.consuming.term_consumer import TermConsumer
from leaderq.kafka.record import Batch, Partition, Record

A = Partition("t", 0)
ANY: Any = None


class Consumer(SimpleNamespace):
    def start_offsets(self, timeout_s: float) -> dict[Partition, int]:
        return {A: 0}

    def end_offsets(self, timeout_s: float) -> dict[Partition, int]:
        return {A: 3}


def consumer_of(
    *, in_hand: bool = True, effects_lost: bool = False, start: str = "earliest"
) -> Any:
    positions, commits = Positions({A: 5}), OffsetCommits(ANY, ANY)
    if in_hand:
        positions.hand(Batch({A: [Record("t", 0, 5, 0, None, b"")]}, {A: 8}))
    made: Any = SimpleNamespace(
        _positions=positions,
        commits=commits,
        _effects_lost=effects_lost,
        _plan=SimpleNamespace(start=start),
        _request_s=1.0,
        stored=[],
        placed=[],
        accepted=[],
    )
    made.has_in_hand = in_hand
    commits.commit_positions_now = (  # type: ignore[method-assign]
        lambda consumer, new, wait_s: made.stored.append((new, wait_s))
    )
    made._place = made.placed.append
    made._check = SimpleNamespace(accept=lambda consumer, topics: made.accepted.append(topics))
    return made


@pytest.mark.parametrize(("stored", "is_committed"), [(8, True), (5, False)])
def test_a_batch_whose_fate_is_unknown_counts_as_committed_only_if_the_store_has_its_ends(
    stored: int, is_committed: bool
) -> None:
    one = consumer_of(effects_lost=True)
    one.commits.request({A: 8}, in_hand=True)
    TermConsumer._resume(one, {A: stored}, frozenset({A}))
    assert one.commits.outcome is is_committed
    assert one._positions.in_hand is None
    assert one._positions.handed == {A: stored}
    assert one._effects_lost is False


def test_without_lost_effects_a_batch_stays_in_hand() -> None:
    one = consumer_of()
    one.commits.request({A: 8}, in_hand=True)
    TermConsumer._resume(one, {A: 5}, frozenset({A}))
    assert one._positions.in_hand is not None
    assert one.commits.wanted == {A: 8}


def test_a_batch_that_nobody_asked_to_commit_is_handed_out_again_when_its_effects_are_lost() -> (
    None
):
    one = consumer_of(effects_lost=True)
    TermConsumer._resume(one, {A: 5}, frozenset({A}))
    assert (one._positions.in_hand, one._positions.handed) == (None, {A: 5})


def test_positions_are_not_reset_in_the_middle_of_a_batch() -> None:
    held = consumer_of()
    assert not TermConsumer._reset(held, Consumer(), frozenset({"t"}))
    asked = consumer_of(in_hand=False)
    asked.commits.wanted = {A: 8}
    assert not TermConsumer._reset(asked, Consumer(), frozenset({"t"}))
    assert held.stored == asked.stored == []
    assert held.accepted == asked.accepted == []


def test_a_position_past_the_end_is_reset_and_stored_before_reading_goes_on() -> None:
    one = consumer_of(in_hand=False)
    assert TermConsumer._reset(one, Consumer(), frozenset(), reread=True)
    assert one.stored == [({A: 0}, 2.0)]
    assert (one._positions.handed, len(one.placed)) == ({A: 0}, 1)
    assert not TermConsumer._reset(one, Consumer(), frozenset())


def test_a_topic_made_again_stops_a_career_that_has_not_said_where_to_go_on() -> None:
    one = consumer_of(in_hand=False, start="none")
    with pytest.raises(KafkaError, match="deleted and created again"):
        TermConsumer._reset(one, Consumer(), frozenset({"t"}))
