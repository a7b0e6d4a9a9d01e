"""Reading ahead, against plain lists, and at its limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.kafka.consuming.rate_limit import RateLimiter
from leaderq.kafka.consuming.read_ahead import BatchLimits, ReadAhead, shares
from leaderq.kafka.record import Batch, Partition, Record

A, B, C = (Partition("t", number) for number in range(3))


def rows(where: Partition, *sizes: int, first: int = 0) -> list[Record]:
    return [
        Record(where.topic, where.number, first + at, 0, None, b"x" * size)
        for at, size in enumerate(sizes)
    ]


def ahead(**limits: object) -> ReadAhead:
    return ReadAhead(BatchLimits(**limits))


@given(
    st.lists(
        st.tuples(st.sampled_from([A, B, C]), st.lists(st.integers(0, 9), max_size=6)), max_size=8
    ),
    st.integers(1, 8),
    st.none() | st.integers(1, 30),
)
def test_every_record_is_handed_out_once_in_order_and_no_batch_is_too_large(polls, most, max_bytes):
    limits = {"max_records": most, "max_bytes": max_bytes}
    buffer, waiting = ahead(**limits), {A: [], B: [], C: []}
    for where, sizes in polls:
        made = rows(where, *sizes, first=len(waiting[where]))
        waiting[where] += made
        buffer.add({where: made}, 0.0)
    handed: dict[Partition, list[Record]] = {A: [], B: [], C: []}
    while (batch := buffer.take(0.0)) is not None:
        records = [record for part in batch.records.values() for record in part]
        assert 0 < len(records) <= most
        size = sum(record.size for record in records)
        assert max_bytes is None or size <= max_bytes or len(records) == 1
        left = {where: len(waiting[where]) - len(handed[where]) for where in waiting}
        fair = shares({where: count for where, count in left.items() if count}, most)
        for where, part in batch.records.items():
            assert len(part) <= max(fair.values())
            handed[where] += part
            assert batch.ends[where] == handed[where][-1].offset + 1
        if max_bytes is None:
            assert len(records) == min(most, sum(left.values()))
    assert handed == waiting
    assert (buffer.is_empty, buffer._bytes, buffer.wait_s(0.0)) == (True, 0, None)


@given(st.dictionaries(st.sampled_from([A, B, C]), st.integers(1, 9)), st.integers(0, 20))
def test_shares_are_as_even_as_can_be(counts, most):
    found = shares(counts, most)
    assert sum(found.values()) == min(most, sum(counts.values()))
    assert all(0 < count <= counts[where] for where, count in found.items())
    short = [found.get(where, 0) for where in counts if found.get(where, 0) < counts[where]]
    assert not short or max(found.values(), default=0) - min(short) <= 1


def test_a_full_batch_does_not_wait_and_a_small_one_for_its_first_record():
    buffer = ahead(max_records=3, max_wait_s=5.0)
    assert buffer.wait_s(0.0) is None
    buffer.add({A: rows(A, 1)}, 10.0)
    buffer.add({B: rows(B, 1)}, 12.0)
    assert (buffer.wait_s(10.0), buffer.wait_s(14.0), buffer.wait_s(99.0)) == (5.0, 1.0, 0.0)
    assert buffer.take(14.9) is None
    buffer.add({A: rows(A, 1, first=1)}, 13.0)
    assert buffer.wait_s(13.0) == 0.0
    batch = buffer.take(13.0)
    assert len(batch) == 3


def test_enough_bytes_do_not_wait_either():
    buffer = ahead(max_bytes=10, max_wait_s=5.0)
    buffer.add({A: rows(A, 4, 5)}, 0.0)
    assert buffer.wait_s(0.0) == 5.0
    buffer.add({A: rows(A, 1, first=2)}, 0.0)
    assert buffer.wait_s(0.0) == 0.0
    late = ahead(max_records=9, max_wait_s=0.0)
    late.add({A: rows(A, 1)}, 7.0)
    assert late.wait_s(7.0) == 0.0


# fmt: off
ROOMS: list[tuple[dict[str, int], dict[Partition, list[int]], int]] = [
    # with workers more is read ahead, less where every worker has a partition
    ({"max_records": 10, "workers": 1}, {}, 10),
    ({"max_records": 10, "workers": 2}, {}, 100_000),
    ({"max_records": 10, "workers": 3}, {}, 100_000),
    ({"max_records": 60_000, "workers": 2}, {}, 120_000),
    ({"max_records": 10, "workers": 2}, {A: [1]}, 99_999),
    ({"max_records": 10, "workers": 2}, {A: [1], B: [1]}, 9_998),
    # no more is polled for than will fit
    ({"max_records": 2}, {A: [0]}, 1),
    ({"max_records": 2}, {A: [0, 0, 0]}, 0),
    ({"max_records": 10, "max_bytes": 100}, {}, 10),
    ({"max_records": 10, "max_bytes": 100}, {A: [20], B: []}, 4),
    ({"max_records": 10, "max_bytes": 100}, {A: [20, 70]}, 1),
    ({"max_records": 10, "max_bytes": 100}, {A: [20, 70, 9]}, 1),
    ({"max_records": 10, "max_bytes": 100}, {A: [20, 70, 9, 1]}, 0),
    ({"max_records": 500, "max_bytes": 100}, {}, 100),
    ({"max_records": 500, "max_bytes": 100}, {A: [0]}, 100),
    ({"max_records": 50, "max_bytes": 100}, {A: [10, 10]}, 8),
    ({"max_records": 2, "max_bytes": 100}, {A: [0, 0]}, 0),
    # two batches are ahead where commits are behind
    ({"max_records": 10, "ahead": 1}, {}, 10),
    ({"max_records": 10, "ahead": 2}, {}, 20),
]
# fmt: on


@pytest.mark.parametrize(("limits", "read", "room"), ROOMS)
def test_there_is_room_for(limits, read, room):
    at_once, singly = ahead(**limits), ahead(**limits)
    for where, sizes in read.items():
        at_once.add({where: rows(where, *sizes)}, 0.0)
        for at, size in enumerate(sizes):
            singly.add({where: rows(where, size, first=at)}, 0.0)
        singly.add({where: []}, 0.0)
    assert (at_once.room, singly.room) == (room, room)


def test_a_part_that_just_fits_is_not_cut():
    whole = rows(A, 3, 3, 4)
    for limits in ({"max_records": 3}, {"max_bytes": 10, "max_records": 3}):
        buffer = ahead(**limits)
        buffer.add({A: whole}, 0.0)
        batch = buffer.take(0.0)
        assert batch.records[A] is whole


def test_a_batch_takes_as_many_bytes_as_it_may_and_the_first_in_any_case():
    buffer = ahead(max_bytes=6, max_records=9)
    buffer.add({A: rows(A, 9, 3, 3, 1)}, 0.0)
    counts = []
    while (batch := buffer.take(0.0)) is not None:
        counts.append(len(batch))
    assert counts == [1, 2, 1]


def test_partitions_that_were_served_come_last_next_time():
    buffer = ahead(max_records=1)
    buffer.add({A: rows(A, 1, 1), B: rows(B, 1, 1)}, 0.0)
    served = []
    while (batch := buffer.take(0.0)) is not None:
        served += list(batch.records)
    assert served == [A, B, A, B]


@pytest.mark.parametrize(
    ("rate", "count", "batches"),
    [
        (20.0, 27, [(0.0, 20), (0.1, 2), (0.1, 2), (0.1, 2), (0.05, 1)]),
        (0.5, 3, [(0.0, 1), (2.0, 1), (2.0, 1)]),
        (500.0, 70, [(0.0, 60), (0.0, 10)]),
    ],
)
def test_a_second_of_records_goes_at_once_and_then_a_tenth_of_a_second_each(rate, count, batches):
    buffer = ReadAhead(BatchLimits(max_records=60), RateLimiter(records_per_s=rate))
    now_s, found = 5.0, []
    buffer.add({A: rows(A, *[0] * count)}, now_s)
    while not buffer.is_empty:
        batch = buffer.take(now_s)
        wait_s = 0.0 if batch else buffer.wait_s(now_s)
        if batch is None:
            assert wait_s
            assert buffer.room == 0
            assert buffer.take(now_s + wait_s - 0.001) is None
            now_s += wait_s
            batch = buffer.take(now_s)
        found.append((round(wait_s, 4), len(batch)))
    assert found == batches


def test_another_part_fits_if_it_does_even_as_large_as_parts_may_be():
    buffer = ahead(max_records=9, max_bytes=12, parts=2)  # up to 5 records of 6 bytes
    for sizes, fits in (([6], True), ([7], False), ([1] * 4, True), ([1] * 5, False)):
        parts = [Batch({A: rows(A, *sizes[:1])}), Batch({B: rows(B, *sizes[1:])})]
        assert buffer.fits(parts) is fits
    assert ahead(max_records=9, parts=2).fits([Batch({A: rows(A, 99)})])


def test_what_is_dropped_takes_no_room():
    buffer = ahead(max_records=10, max_bytes=1)
    buffer.add({A: rows(A, 1)}, 0.0)
    assert buffer.room == 0
    buffer.clear()
    assert (buffer.room, buffer.is_empty) == (1, True)


def test_what_the_rate_holds_back_keeps_its_place_and_goes_with_all_that_was_read():
    rate = RateLimiter(records_per_s=3.0)
    buffer = ReadAhead(BatchLimits(max_records=4), rate)
    buffer.add({A: rows(A, *[0] * 4), B: rows(B, *[0] * 2)}, 5.0)
    first = buffer.take(5.0)
    assert {where: len(found) for where, found in first.records.items()} == {A: 2, B: 1}
    assert not buffer.is_empty
    buffer.clear()
    assert buffer.is_empty
    assert (buffer.wait_s(9.0), buffer.take(9.0)) == (None, None)
    buffer.add({A: rows(A, 0)}, 9.0)
    assert buffer.take(9.0) is not None
