"""The pace of handing out, on a clock that only the test moves: what is promised must hold over any
stream and any window.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.kafka.handling.rate_limit import RateLimiter
from leaderq.kafka.record import Record

LITTLE = 1e-3


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def record(offset: int, key: bytes | None = None, value: bytes = b"") -> Record:
    return Record("t", 0, offset, 0, key, value)


def hand_out(
    pace: RateLimiter,
    clock: Clock,
    records: Sequence[Record],
    *,
    late_s: float = 0.0,
    work_s: float = 0.0,
    tell: bool = True,
) -> list[tuple[float, Record]]:
    """Play the caller, who waits a little longer than asked and works a little; returns when each
    record was handed out.
    """
    handed = []
    for wait_s, part in pace.parts(records):
        assert part, "an empty part"
        clock.at += wait_s + late_s
        if tell:
            pace.handed_out()
        handed += [(clock.at, each) for each in part]
        clock.at += work_s
    return handed


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
        st.tuples(st.sampled_from([None, b"a", b"b", b"c"]), st.integers(0, 400)),
        max_size=12,
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
    st.booleans(),
)
def test_over_any_stream_and_any_window_the_limits_hold_and_nothing_is_lost_or_reordered(
    stream: list[list[tuple[bytes | None, int]]],
    records_per_s: float | None,
    bytes_per_s: float | None,
    interval_s: float | None,
    pauses: list[float],
    late_s: float,
    work_s: float,
    tell: bool,
) -> None:
    clock = Clock()
    pace = RateLimiter(records_per_s, bytes_per_s, interval_s, clock)
    given_, handed = [], []
    for pause_s, rows in zip(pauses, stream, strict=False):
        batch = [record(len(given_) + n, key, b"x" * size) for n, (key, size) in enumerate(rows)]
        given_ += batch
        handed += hand_out(pace, clock, batch, late_s=late_s, work_s=work_s, tell=tell)
        clock.at += pause_s
    assert [each.offset for _, each in handed] == [each.offset for each in given_]
    if records_per_s is not None:
        assert worst([(at, 1) for at, _ in handed], records_per_s) <= max(1, records_per_s) + LITTLE
    if bytes_per_s is not None:
        largest = max((each.size for each in given_), default=0)
        assert (
            worst([(at, each.size) for at, each in handed], bytes_per_s)
            <= max(1, bytes_per_s, largest) + LITTLE
        )
    if interval_s is not None:
        for key in (b"a", b"b", b"c"):
            times = [at for at, each in handed if each.key == key]
            assert all(later - sooner >= interval_s - LITTLE for sooner, later in pairwise(times))


def test_a_record_larger_than_a_seconds_bytes_passes_alone_and_is_paid_off_after() -> None:
    clock = Clock()
    pace = RateLimiter(None, 100, None, clock)
    batch = [record(0, None, b"x" * 10), record(1, None, b"x" * 1000), record(2, None, b"x" * 10)]
    handed = [(at - 1000, each.offset) for at, each in hand_out(pace, clock, batch)]
    assert handed == [(0, 0), (pytest.approx(0.1), 1), (pytest.approx(9.2), 2)]


def test_a_key_waits_and_makes_what_is_behind_it_wait() -> None:
    clock = Clock()
    batch = [
        record(0, b"a"),
        record(1, b"b"),
        record(2, b"a"),
        record(3, b"c"),
        record(4),
        record(5, b"b"),
    ]
    handed = hand_out(RateLimiter(None, None, 5, clock), clock, batch)
    assert [(at - 1000, each.offset) for at, each in handed] == [
        (0, 0),
        (0, 1),
        (5, 2),
        (5, 3),
        (5, 4),
        (5, 5),
    ]


def test_keys_are_forgotten_when_their_interval_is_over() -> None:
    clock = Clock()
    pace = RateLimiter(None, None, 5, clock)
    hand_out(pace, clock, [record(n, b"%d" % n) for n in range(1000)])
    clock.at += 5
    hand_out(pace, clock, [record(1000, b"new")])
    (keys,) = pace._limits
    assert len(keys._last) == 1
