"""How long a part waits and where it ends, to the token."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.kafka.consuming.rate_limit import RateLimiter
from leaderq.kafka.record import Record


class Clock:
    at = 0.0


@pytest.fixture
def clock():
    return Clock()


def rows(*keys: Any, size: int = 0) -> list[Record]:
    return [Record("t", 0, at, 0, key, b"x" * size) for at, key in enumerate(keys)]


def played(limiter: RateLimiter, clock: Clock, records: list[Record]) -> list[tuple[float, int]]:
    """The waits, rounded, and the sizes of the parts."""
    found = []
    while records:
        wait_s = limiter.wait_s(records, clock.at)
        clock.at += wait_s
        part = limiter.take(records, clock.at)
        records = records[len(part) :]
        found.append((round(wait_s, 4), len(part)))
    return found


def test_without_limits_all_go_at_once_as_they_are():
    records = rows(None, None)
    assert RateLimiter().wait_s(records, 0.0) == 0.0
    assert RateLimiter().take(records, 0.0) is records


def test_a_second_of_records_goes_at_once_and_then_a_tenth_of_a_second_each(clock):
    limiter = RateLimiter(records_per_s=20)
    assert played(limiter, clock, rows(*[None] * 27)) == [
        (0.0, 20),
        (0.1, 2),
        (0.1, 2),
        (0.1, 2),
        (0.05, 1),
    ]


def test_what_has_come_in_a_pause_goes_at_once_and_one_record_at_least(clock):
    limiter = RateLimiter(records_per_s=20)
    played(limiter, clock, rows(*[None] * 20))
    clock.at += 0.05
    assert played(limiter, clock, rows(*[None] * 3)) == [(0.0, 1), (0.1, 2)]
    clock.at += 0.25
    assert played(limiter, clock, rows(*[None] * 3)) == [(0.0, 3)]
    slow = RateLimiter(records_per_s=5)
    assert played(slow, clock, rows(*[None] * 7)) == [(0.0, 5), (0.2, 1), (0.2, 1)]


def test_a_record_larger_than_a_second_goes_out_of_a_full_bucket_and_is_paid_off(clock):
    limiter = RateLimiter(bytes_per_s=100)
    big, small = rows(None, size=250), rows(None, size=10)
    assert played(limiter, clock, big) == [(0.0, 1)]
    assert played(limiter, clock, small) == [(1.6, 1)]
    assert played(limiter, clock, [*small, *big]) == [(0.1, 1), (1.0, 1)]


def test_bytes_wait_for_a_quantum_or_for_the_record_or_for_all_that_is_left(clock):
    limiter = RateLimiter(bytes_per_s=100)
    assert played(limiter, clock, rows(None, size=100)) == [(0.0, 1)]
    assert played(limiter, clock, rows(None, None, None, size=4)) == [(0.1, 2), (0.02, 1)]
    assert played(limiter, clock, rows(None, None, size=4)) == [(0.08, 2)]
    assert played(limiter, clock, rows(None, size=3)) == [(0.03, 1)]
    assert played(limiter, clock, rows(None, size=50)) == [(0.5, 1)]


def test_a_key_waits_for_its_interval_and_others_do_not(clock):
    limiter = RateLimiter(key_interval_s=1.0)
    assert played(limiter, clock, rows("a", "b", None, None, "a")) == [(0.0, 4), (1.0, 1)]
    clock.at += 0.25
    assert played(limiter, clock, rows(None, "c", "a", "c")) == [(0.0, 2), (0.75, 1), (0.25, 1)]


def test_a_key_that_may_go_when_the_part_does_is_part_of_it(clock):
    limiter = RateLimiter(key_interval_s=1.0)
    assert played(limiter, clock, rows("a", "b")) == [(0.0, 2)]
    assert played(limiter, clock, rows("a", "b", "c")) == [(1.0, 3)]
    assert played(limiter, clock, rows("d")) == [(0.0, 1)]
    clock.at += 0.5
    assert played(limiter, clock, rows("a", "d")) == [(0.5, 2)]


def test_keys_are_forgotten_when_their_interval_is_over_the_oldest_first(clock):
    limiter = RateLimiter(key_interval_s=1.0)
    keys = limiter._limits[0]._last
    played(limiter, clock, rows("a"))
    clock.at = 0.5
    played(limiter, clock, rows("b"))
    clock.at = 1.0
    played(limiter, clock, rows("a"))
    assert len(keys) == 2
    clock.at = 1.5
    played(limiter, clock, rows("c"))
    assert len(keys) == 2
    clock.at = 9.0
    played(limiter, clock, rows(None))
    assert len(keys) == 0


def test_what_cannot_be_hashed_is_told_apart_too(clock):
    limiter = RateLimiter(key_interval_s=1.0)
    assert played(limiter, clock, rows(["a"], ["b"], ["a"])) == [(0.0, 2), (1.0, 1)]


def test_the_limits_count_from_when_a_part_was_handed_out():
    limiter, now_s, waits = RateLimiter(records_per_s=1), 0.0, []
    for _ in range(2):
        waits.append(limiter.wait_s(rows(None), now_s))
        now_s += waits[-1]
        limiter.take(rows(None), now_s)
        now_s += 0.25
    assert waits == [0.0, 0.75]


def test_the_stricter_of_two_limits_decides(clock):
    limiter = RateLimiter(records_per_s=10, bytes_per_s=100, key_interval_s=5.0)
    assert played(limiter, clock, rows("a", "b", "c", size=50)) == [(0.0, 2), (0.5, 1)]


def worst(times: list[tuple[float, float]], rate: float) -> float:
    """The most that any window had beyond ``rate`` times its length; ``times`` are (instant,
    amount).
    """
    totals = list(accumulate((amount for _, amount in times), initial=0.0))
    beyond = 0.0
    for first, (began, _) in enumerate(times):
        for last in range(first, len(times)):
            beyond = max(beyond, totals[last + 1] - totals[first] - rate * (times[last][0] - began))
    return beyond


streams = st.lists(
    st.lists(
        st.tuples(st.sampled_from([None, b"a", b"b", b"c"]), st.integers(0, 400)), max_size=12
    ),
    max_size=5,
)
delays = st.floats(0, 3)


@given(
    streams,
    st.none() | st.floats(0.3, 50),
    st.none() | st.floats(1, 300),
    st.none() | st.floats(0.01, 20),
    st.lists(delays, min_size=5, max_size=5),
    delays,
    st.floats(0, 1),
)
def test_over_any_stream_and_any_window_the_limits_hold_and_nothing_is_lost_or_reordered(
    stream, records_per_s, bytes_per_s, interval_s, pauses, late_s, work_s
):
    clock = Clock()
    pace = RateLimiter(records_per_s, bytes_per_s, interval_s)
    given_: list[Record] = []
    handed: list[tuple[float, Record]] = []
    for pause_s, found in zip(pauses, stream, strict=False):
        batch = [Record("t", 0, n, 0, key, b"x" * size) for n, (key, size) in enumerate(found)]
        given_ += batch
        while batch:
            clock.at += pace.wait_s(batch, clock.at) + late_s
            part = pace.take(batch, clock.at)
            assert part
            batch = batch[len(part) :]
            handed += [(clock.at, each) for each in part]
            clock.at += work_s
        clock.at += pause_s
    assert [each for _, each in handed] == given_
    if records_per_s is not None:
        assert worst([(at, 1) for at, _ in handed], records_per_s) <= max(1, records_per_s) + 1e-3
    if bytes_per_s is not None:
        largest = max((each.size for each in given_), default=0)
        assert (
            worst([(at, each.size) for at, each in handed], bytes_per_s)
            <= max(1, bytes_per_s, largest) + 1e-3
        )
    if interval_s is not None:
        for key in (b"a", b"b", b"c"):
            times = [at for at, each in handed if each.key == key]
            assert all(later - sooner >= interval_s - 1e-3 for sooner, later in pairwise(times))


def test_a_tenth_of_a_second_is_at_least_a_byte_and_what_weighs_nothing_waits_for_debts(clock):
    slow = RateLimiter(bytes_per_s=0.5)
    sizes = [rows(None, size=size)[0] for size in (1, 0, 1)]
    assert played(slow, clock, sizes) == [(0.0, 2), (2.0, 1)]
    quick = RateLimiter(bytes_per_s=5)
    assert played(quick, clock, [*rows(None, size=10), *sizes[1:]]) == [(0.0, 1), (1.2, 2)]


def test_a_part_has_a_record_however_times_are_rounded(clock):
    limiter, clock.at = RateLimiter(key_interval_s=1.167), 0.342
    assert played(limiter, clock, rows("a")) == [(0.0, 1)]
    clock.at = 0.348  # and 0.348 + (0.342 + 1.167 - 0.348) is less than 0.342 + 1.167
    assert [parts for _, parts in played(limiter, clock, rows("a"))] == [1]
