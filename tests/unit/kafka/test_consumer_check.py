"""The stall detector as lists of looks: what counts as a stall, and what must not."""

from __future__ import annotations

import pytest

from leaderq.kafka.consuming.consumer_check import Observation, StallLimits, StallWatch
from leaderq.kafka.record import Partition

WHERE = Partition("t", 0)
LIMITS = StallLimits(still_s=10, polls=100, empty_polls=10, unmoved_factor=3)


def looks(*rows: tuple[float, int, int, int, int], watch: StallWatch | None = None) -> list[float]:
    """The instants at which looks (at, position, end, polls, empty polls) are judged a stall."""
    watch = watch or StallWatch()
    return [row[0] for row in rows if watch.find({WHERE: Observation(*row)}, LIMITS)]


def test_a_position_that_stands_while_the_end_moves_has_stalled() -> None:
    assert looks((0, 5, 9, 0, 0), (5, 5, 12, 25, 25), (10, 5, 14, 50, 50)) == [10]


def test_a_partition_read_to_its_end_has_not_stalled() -> None:
    assert looks((0, 9, 9, 0, 0), (50, 9, 9, 250, 250), (100, 9, 9, 500, 500)) == []


def test_time_counts_from_when_records_began_to_wait() -> None:
    assert looks(
        (0, 9, 9, 0, 0), (60, 9, 9, 300, 300), (65, 9, 12, 325, 325), (70, 9, 13, 350, 350)
    ) == [70]


def test_a_partition_starved_of_fetches_while_others_flow_is_found_after_many_polls() -> None:
    assert looks((0, 5, 9, 0, 0), (10, 5, 20, 60, 0), (20, 5, 30, 120, 0)) == [20]


def test_a_tail_that_does_not_move_is_given_longer_and_one_rebuild_only() -> None:
    rows = [(at, 5, 6, at * 5, at * 5) for at in range(0, 200, 5)]
    assert looks(*rows) == [30]


def test_after_a_rebuild_time_and_polls_are_counted_again_and_the_same_stall_is_told_once() -> None:
    def rebuilt() -> StallWatch:
        watch = StallWatch()
        assert looks(*((at, 5, 6, at * 5, at * 5) for at in range(0, 35, 5)), watch=watch) == [30]
        watch.restart()
        return watch

    assert looks((31, 5, 6, 156, 156), (90, 5, 6, 400, 400), watch=rebuilt()) == []
    assert looks((31, 5, 6, 156, 156), (41, 5, 9, 166, 166), watch=rebuilt()) == [41]
    assert looks((31, 5, 6, 156, 156), (41, 5, 9, 157, 157), watch=rebuilt()) == []


@pytest.mark.parametrize("gone", [{}, {Partition("t", 1): Observation(0, 0, 0, 0, 0)}])
def test_a_partition_not_held_any_more_is_forgotten(gone: dict[Partition, Observation]) -> None:
    watch = StallWatch()
    watch.find({WHERE: Observation(0, 5, 9, 0, 0)}, LIMITS)
    watch.find(gone, LIMITS)
    assert looks((11, 5, 99, 60, 60), watch=watch) == []
