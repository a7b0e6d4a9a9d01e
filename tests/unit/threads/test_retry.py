from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.errors import ConfigurationError
from leaderq.threads import Backoff, Retry

POLICY = Retry(first_s=0.5, most_s=3.0, jitter=0.5)


def test_by_default_it_is_tried_again_for_ever_from_50_ms_to_a_minute() -> None:
    assert Retry() == Retry(None, 0.05, 60.0, 2.0, 0.5)
    assert Retry(attempts=1).is_exhausted(1)


def test_delays_double_up_to_the_most_and_none_is_due_without_a_failure() -> None:
    assert [POLICY.delay_s(failures, 0) for failures in range(6)] == [0.0, 0.5, 1.0, 2.0, 3.0, 3.0]


def test_chance_cuts_the_share_that_jitter_allows() -> None:
    assert POLICY.delay_s(2, 1) == 0.5
    assert POLICY.delay_s(2, 0.5) == 0.75
    assert Retry(first_s=0.5, most_s=3.0, jitter=0).delay_s(2, 1) == 1.0


def test_without_a_given_chance_two_who_failed_together_draw_different_delays() -> None:
    assert len({POLICY.delay_s(5) for _ in range(20)}) > 1


@given(
    first_s=st.floats(0, 10),
    more_s=st.floats(0, 1000),
    factor=st.floats(1, 10),
    jitter=st.floats(0, 1),
    failures=st.integers(1, 10**6),
    chance=st.floats(0, 1),
)
def test_a_delay_never_shrinks_with_failures_and_stays_within_its_bounds(
    first_s: float, more_s: float, factor: float, jitter: float, failures: int, chance: float
) -> None:
    policy = Retry(first_s=first_s, most_s=first_s + more_s, factor=factor, jitter=jitter)
    full_s = policy.delay_s(failures, 0)
    assert first_s <= full_s <= policy.most_s
    assert full_s <= policy.delay_s(failures + 1, 0)
    assert full_s * (1 - jitter) <= policy.delay_s(failures, chance) <= full_s


@pytest.mark.parametrize("factor", [1.1, 2.0, 10.0])
def test_the_most_is_reached_at_last_however_slowly_it_grows(factor: float) -> None:
    assert Retry(first_s=0.1, most_s=60.0, factor=factor).delay_s(100_000, 0) == 60.0


def test_a_policy_without_delays_never_delays() -> None:
    assert Retry(first_s=0.0, most_s=60.0).delay_s(1_000_000, 0) == 0.0


def test_the_first_wait_is_never_longer_than_the_longest() -> None:
    assert Retry(first_s=60.0, most_s=3.0).delay_s(1, 0) == 3.0


def test_it_is_given_up_after_so_many_failures_or_never() -> None:
    assert [Retry(attempts=3).is_exhausted(failures) for failures in (2, 3, 4)] == [
        False,
        True,
        True,
    ]
    assert not Retry().is_exhausted(1_000_000)


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"attempts": 0}, ["attempts=0"]),
        ({"attempts": True}, ["attempts=True"]),
        ({"first_s": -1, "jitter": 1.5}, ["first_s=-1", "jitter=1.5"]),
        ({"factor": 0.5, "most_s": float("nan")}, ["most_s=nan", "factor=0.5"]),
        ({"jitter": -0.1}, ["jitter=-0.1"]),
    ],
)
def test_every_number_that_cannot_be_used_is_named(wrong: dict[str, Any], named: list[str]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Retry(**wrong)
    assert [problem.partition(":")[0] for problem in refused.value.problems] == named


def test_a_backoff_counts_failures_in_a_row() -> None:
    backoff = Backoff(POLICY)
    assert [backoff.next_s(0) for _ in range(3)] == [0.5, 1.0, 2.0]
    assert backoff.failures == 3
    backoff.reset()
    assert backoff.next_s(0) == 0.5
