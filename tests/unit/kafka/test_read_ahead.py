"""What is read ahead, and the batches it is cut into: each from all partitions that have
records.
"""

from __future__ import annotations

from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.kafka.consuming.read_ahead import (
    MOST_SPREAD_RECORDS,
    SPREAD_RECORDS,
    BatchLimits,
    ReadAhead,
    shares,
)
from leaderq.kafka.record import Partition, Record

PARTITIONS = [Partition("t", number) for number in range(4)]
RUNS = st.lists(st.tuples(st.sampled_from(PARTITIONS), st.integers(1, 30)), max_size=12)


def rows(where: Partition, first: int, count: int, value: bytes = b"") -> list[Record]:
    return [
        Record(where.topic, where.number, at, 0, None, value) for at in range(first, first + count)
    ]


def test_a_batch_has_as_much_of_each_partition_although_records_come_in_long_runs() -> None:
    ahead = ReadAhead(BatchLimits(max_records=8, workers=4))
    for where in PARTITIONS:
        ahead.add({where: rows(where, 0, 8)}, 0.0)
    assert ahead.room == SPREAD_RECORDS - 32
    for first in (0, 2, 4, 6):
        batch = ahead.take(0.0)
        assert batch is not None
        assert batch.ends == dict.fromkeys(PARTITIONS, first + 2)
        assert all(
            [row.offset for row in found] == [first, first + 1] for found in batch.records.values()
        )
    assert ahead.is_empty


def test_records_of_one_partition_leave_room_for_others_until_all_workers_have_some() -> None:
    ahead = ReadAhead(BatchLimits(workers=3))
    for where in PARTITIONS[:3]:
        assert ahead.room > SPREAD_RECORDS
        ahead.add({where: rows(where, 0, SPREAD_RECORDS)}, 0.0)
    assert ahead.room == 0
    assert ReadAhead(BatchLimits(max_records=100, max_bytes=10, workers=3)).room <= 10


def test_a_batch_waits_for_more_only_as_long_as_it_may() -> None:
    ahead = ReadAhead(BatchLimits(max_records=10, max_wait_s=1.0, workers=2))
    assert ahead.wait_s(0.0) is None
    ahead.add({PARTITIONS[0]: rows(PARTITIONS[0], 0, 1)}, 5.0)
    assert ahead.wait_s(5.25) == 0.75
    assert ahead.take(5.25) is None
    assert ahead.take(6.0) is not None


@given(
    counts=st.dictionaries(st.sampled_from(PARTITIONS), st.integers(1, 50)),
    most=st.integers(1, 120),
)
def test_shares_are_even_and_leave_nothing_that_there_is_room_for(
    counts: dict[Partition, int], most: int
) -> None:
    taken = shares(counts, most)
    assert sum(taken.values()) == min(most, sum(counts.values()))
    assert all(0 < taken[where] <= counts[where] for where in taken)
    unsatisfied = [taken.get(where, 0) for where in counts if taken.get(where, 0) < counts[where]]
    if unsatisfied:
        assert max(taken.values()) <= min(unsatisfied) + 1 + most % len(counts)


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("max_bytes", [None, 50])
@given(runs=RUNS, most=st.integers(1, 20), size=st.integers(1, 60))
def test_every_record_comes_out_once_and_in_order_within_the_limits(
    max_bytes: int | None, workers: int, runs: list[tuple[Partition, int]], most: int, size: int
) -> None:
    ahead = ReadAhead(BatchLimits(max_records=most, max_bytes=max_bytes, workers=workers))
    came: dict[Partition, int] = defaultdict(int)
    went: dict[Partition, int] = defaultdict(int)
    for where, count in runs:
        ahead.add({where: rows(where, came[where], count, b"x" * size)}, 0.0)
        came[where] += count
    while (batch := ahead.take(0.0)) is not None:
        assert 0 < len(batch) <= most
        assert max_bytes is None or len(batch) == 1 or len(batch) * size <= max_bytes
        for where, found in batch.records.items():
            assert [row.offset for row in found] == list(
                range(went[where], went[where] + len(found))
            )
            went[where] = batch.ends[where]
    assert went == came
    assert ahead.is_empty
    assert 0 < ahead.room <= (most if workers == 1 else MOST_SPREAD_RECORDS)
