"""Where reading goes on: the bookkeeping of one term as a list of what happens."""

from __future__ import annotations

from leaderq.kafka.progress import Progress
from leaderq.kafka.record import Batch, Partition, Record, batch_of

A, B = Partition("t", 0), Partition("t", 1)


def batch(where: Partition, first: int, last: int) -> Batch:
    return batch_of({where: [Record(where.topic, where.number, at, 0, None, b"") for at in range(first, last + 1)]})


def test_a_batch_given_moves_where_reading_goes_on_but_not_what_is_saved() -> None:
    progress = Progress({A: 10, B: 0})
    progress.give(batch(A, 10, 14))
    assert (progress.given[A], progress.saved[A]) == (15, 10)


def test_a_settled_batch_is_saved() -> None:
    progress = Progress({A: 10})
    progress.give(batch(A, 10, 14))
    progress.settle()
    assert progress.saved == {A: 15}
    assert progress.in_hand is None


def test_a_batch_in_hand_survives_a_rejoin_if_nobody_moved_the_offsets() -> None:
    progress = Progress({A: 10, B: 0})
    progress.give(batch(A, 10, 14))
    assert progress.resume({A: 10, B: 0}, {A, B}) == frozenset()
    assert progress.in_hand is not None
    assert progress.given[A] == 15


def test_a_commit_whose_answer_was_lost_is_recognised_as_ones_own() -> None:
    progress = Progress({A: 10})
    progress.give(batch(A, 10, 14))
    assert progress.resume({A: 15}, {A}) == frozenset()
    assert progress.in_hand is not None


def test_offsets_moved_by_somebody_else_are_the_truth_and_the_batch_is_let_go_of() -> None:
    progress = Progress({A: 10, B: 0})
    progress.give(batch(A, 10, 14))
    assert progress.resume({A: 3, B: 0}, {A, B}) == {A}
    assert progress.in_hand is None
    assert progress.given == {A: 3, B: 0}


def test_letting_go_of_a_batch_takes_back_all_its_partitions() -> None:
    progress = Progress({A: 10, B: 0})
    progress.give(Batch(records={}, ends={A: 15, B: 5}))
    progress.resume({A: 3, B: 0}, {A, B})
    assert progress.given == {A: 3, B: 0}


def test_a_partition_lost_to_another_member_is_not_read_on() -> None:
    progress = Progress({A: 10, B: 0})
    progress.resume({A: 10}, {A})
    assert progress.given == {A: 10}


def test_positions_past_markers_are_taken_over_but_never_backwards() -> None:
    progress = Progress({A: 10, B: 7})
    progress.advance({A: 12, B: 5})
    assert progress.given == {A: 12, B: 7}
