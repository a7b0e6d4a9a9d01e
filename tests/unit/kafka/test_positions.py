"""Where reading goes on: the bookkeeping of one term as a list of what happens."""

from __future__ import annotations

from leaderq.kafka.consuming.positions import Positions, forgotten, resets
from leaderq.kafka.record import Batch, Partition, Record, batch_of

A, B = Partition("t", 0), Partition("t", 1)


def batch(where: Partition, first: int, last: int) -> Batch:
    return batch_of(
        {
            where: [
                Record(where.topic, where.number, at, 0, None, b"") for at in range(first, last + 1)
            ]
        }
    )


def test_a_batch_given_moves_where_reading_goes_on_but_not_what_is_committed() -> None:
    progress = Positions({A: 10, B: 0})
    progress.hand(batch(A, 10, 14))
    assert (progress.handed[A], progress.committed[A]) == (15, 10)


def test_a_settled_batch_is_committed() -> None:
    progress = Positions({A: 10})
    progress.hand(batch(A, 10, 14))
    progress.settle({A: 15})
    assert progress.committed == {A: 15}
    assert progress.in_hand is None


def test_a_batch_in_hand_survives_a_rejoin_if_nobody_moved_the_offsets() -> None:
    progress = Positions({A: 10, B: 0})
    progress.hand(batch(A, 10, 14))
    assert progress.resume({A: 10, B: 0}, {A, B}, {}) == frozenset()
    assert progress.in_hand is not None
    assert progress.handed[A] == 15


def test_a_commit_whose_answer_was_lost_is_recognised_as_ones_own() -> None:
    progress = Positions({A: 10})
    progress.hand(batch(A, 10, 14))
    assert progress.resume({A: 15}, {A}, {A: 15}) == frozenset()
    assert progress.in_hand is not None


def test_offsets_moved_by_somebody_else_are_the_truth_and_the_batch_is_abandoned() -> None:
    progress = Positions({A: 10, B: 0})
    progress.hand(batch(A, 10, 14))
    assert progress.resume({A: 3, B: 0}, {A, B}, {}) == {A}
    assert progress.in_hand is None
    assert progress.handed == {A: 3, B: 0}


def test_positions_past_markers_are_taken_over_but_never_backwards() -> None:
    progress = Positions({A: 10, B: 7})
    progress.advance({A: 12, B: 5})
    assert progress.handed == {A: 12, B: 7}


def test_a_batch_committed_in_part_keeps_its_rest_in_hand() -> None:
    progress = Positions({A: 10, B: 0})
    rows = [Record("t", 0, at, 0, None, b"") for at in (10, 12, 14)]
    progress.hand(Batch(records={A: rows, B: []}, ends={A: 17, B: 5}))
    progress.settle({A: 13, B: 5})
    assert progress.in_hand is not None
    assert progress.in_hand.ends == {A: 17}
    assert [record.offset for record in progress.in_hand.records[A]] == [14]
    progress.settle({A: 17})
    assert progress.in_hand is None


def test_a_batch_with_a_partition_that_was_taken_away_is_abandoned() -> None:
    progress = Positions({A: 10, B: 0})
    progress.hand(Batch(records={}, ends={A: 15, B: 5}))
    assert progress.resume({A: 10}, {A}, {A: 15, B: 5}) == frozenset()
    assert progress.in_hand is None
    assert progress.handed == progress.committed == {A: 10}


def test_a_batch_abandoned_although_it_was_committed_is_not_read_again() -> None:
    progress = Positions({A: 10, B: 0})
    progress.hand(Batch(records={}, ends={A: 15, B: 5}))
    progress.resume({A: 15}, {A}, {A: 15, B: 5})
    assert progress.handed == progress.committed == {A: 15}


def test_a_position_in_a_log_that_was_cut_off_is_reset_although_it_lies_within_the_log() -> None:
    first, last = {A: 0, B: 0}, {A: 90, B: 90}
    assert resets("earliest", {A: 50, B: 50}, (), {B}, first, last) == {B: 0}


def test_an_offset_that_is_gone_is_told_from_one_that_never_was() -> None:
    reached = {"t-0": 40, "t-1": 5, "u-0": 9}
    first = {A: 30, B: 5, Partition("u", 0): 0, Partition("t", 2): 0}
    assert forgotten(reached, [A], [], first) == {A: 40}
    assert forgotten(reached, [B, Partition("t", 2)], [], first) == {}
    assert forgotten(reached, [Partition("u", 0)], ["u"], first) == {}
