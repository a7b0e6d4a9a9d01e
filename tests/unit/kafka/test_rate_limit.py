"""How long a part waits and where it ends, to the token."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.kafka.consuming.rate_limit import RateLimiter
from leaderq.kafka.record import Record


def rows(*keys: Any, size: int = 0) -> list[Record]:
    return [Record("t", 0, at, 0, key, b"x" * size) for at, key in enumerate(keys)]


def sized(*sizes: int) -> list[Record]:
    return [row for size in sizes for row in rows(None, size=size)]


Played = list[tuple[float, int]]
"""How long each part waits, and how many records it has."""


class Player:
    def __init__(self, **limits: float) -> None:
        self.limiter, self.at = RateLimiter(**limits), 0.0

    def play(self, records: list[Record]) -> Played:
        found = []
        while records:
            wait_s = self.limiter.wait_s(records, self.at)
            self.at += wait_s
            part = self.limiter.take(records, self.at)
            records = records[len(part) :]
            found.append((round(wait_s, 4), len(part)))
        return found


Case = tuple[dict[str, float], list[tuple[float, list[Record], Played]]]
"""The limits; and after which pause comes what, and when it goes."""
# fmt: off
CASES: dict[str, Case] = {
    "a second of records goes at once, and then a tenth of a second each": (
        {"records_per_s": 20},
        [(0, rows(*[None] * 27), [(0.0, 20), (0.1, 2), (0.1, 2), (0.1, 2), (0.05, 1)])],
    ),
    "what has come in a pause goes at once": (
        {"records_per_s": 20},
        [(0, rows(*[None] * 20), [(0.0, 20)]), (0.05, rows(*[None] * 3), [(0.0, 1), (0.1, 2)]),
         (0.25, rows(*[None] * 3), [(0.0, 3)])],
    ),
    "one record at least": (
        {"records_per_s": 5}, [(0, rows(*[None] * 7), [(0.0, 5), (0.2, 1), (0.2, 1)])],
    ),
    "a record larger than a second goes out of a full bucket and is paid off": (
        {"bytes_per_s": 100},
        [(0, sized(250), [(0.0, 1)]), (0, sized(10), [(1.6, 1)]),
         (0, sized(10, 250), [(0.1, 1), (1.0, 1)])],
    ),
    "bytes wait for a quantum, or for the record, or for all that is left": (
        {"bytes_per_s": 100},
        [(0, sized(100), [(0.0, 1)]), (0, sized(4, 4, 4), [(0.1, 2), (0.02, 1)]),
         (0, sized(4, 4), [(0.08, 2)]), (0, sized(3), [(0.03, 1)]), (0, sized(50), [(0.5, 1)])],
    ),
    "a tenth of a second is at least a byte": (
        {"bytes_per_s": 0.5}, [(0, sized(1, 0, 1), [(0.0, 2), (2.0, 1)])],
    ),
    "what weighs nothing waits for debts": (
        {"bytes_per_s": 5}, [(0, sized(10, 0, 1), [(0.0, 1), (1.2, 2)])],
    ),
    "a key waits for its interval and others do not": (
        {"key_interval_s": 1.0},
        [(0, rows("a", "b", None, None, "a"), [(0.0, 4), (1.0, 1)]),
         (0.25, rows(None, "c", "a", "c"), [(0.0, 2), (0.75, 1), (0.25, 1)])],
    ),
    "a key that may go when the part does is part of it": (
        {"key_interval_s": 1.0},
        [(0, rows("a", "b"), [(0.0, 2)]), (0, rows("a", "b", "c"), [(1.0, 3)]),
         (0, rows("d"), [(0.0, 1)]), (0.5, rows("a", "d"), [(0.5, 2)])],
    ),
    "what cannot be hashed is told apart too": (
        {"key_interval_s": 1.0}, [(0, rows(["a"], ["b"], ["a"]), [(0.0, 2), (1.0, 1)])],
    ),
    "the stricter of two limits decides": (
        {"records_per_s": 10, "bytes_per_s": 100, "key_interval_s": 5.0},
        [(0, rows("a", "b", "c", size=50), [(0.0, 2), (0.5, 1)])],
    ),
}
# fmt: on


@pytest.mark.parametrize("name", CASES)
def test_how_long_each_part_waits_and_where_it_ends(name):
    limits, steps = CASES[name]
    player, found = Player(**limits), []
    for pause_s, records, _ in steps:
        player.at += pause_s
        found.append(player.play(records))
    assert found == [played for _, _, played in steps]


def test_without_limits_all_go_at_once_as_they_are():
    records = rows(None, None)
    assert RateLimiter().wait_s(records, 0.0) == 0.0
    assert RateLimiter().take(records, 0.0) is records


def test_keys_are_forgotten_when_their_interval_is_over_the_oldest_first():
    player = Player(key_interval_s=1.0)
    keys = player.limiter._limits[0]._last
    kept = []
    for at, key in ((0.0, "a"), (0.5, "b"), (1.0, "a"), (1.5, "c"), (9.0, None)):
        player.at = at
        player.play(rows(key))
        kept.append(len(keys))
    assert kept == [1, 2, 2, 2, 0]


def test_the_limits_count_from_when_a_part_was_handed_out():
    limiter, now_s, waits = RateLimiter(records_per_s=1), 0.0, []
    for _ in range(2):
        waits.append(limiter.wait_s(rows(None), now_s))
        now_s += waits[-1]
        limiter.take(rows(None), now_s)
        now_s += 0.25
    assert waits == [0.0, 0.75]


def test_a_part_has_a_record_however_times_are_rounded():
    player = Player(key_interval_s=1.167)
    for at in (0.342, 0.348):  # 0.348 + (0.342 + 1.167 - 0.348) is less than 0.342 + 1.167
        player.at = at
        assert [parts for _, parts in player.play(rows("a"))] == [1]


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
    now_s = 0.0
    pace = RateLimiter(records_per_s, bytes_per_s, interval_s)
    given_: list[Record] = []
    handed: list[tuple[float, Record]] = []
    for pause_s, found in zip(pauses, stream, strict=False):
        batch = [Record("t", 0, n, 0, key, b"x" * size) for n, (key, size) in enumerate(found)]
        given_ += batch
        while batch:
            now_s += pace.wait_s(batch, now_s) + late_s
            part = pace.take(batch, now_s)
            assert part
            batch = batch[len(part) :]
            handed += [(now_s, each) for each in part]
            now_s += work_s
        now_s += pause_s
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
