"""The arithmetic that the benchmarks judge by."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

from figures import out_of_order, percentile, verdict


def test_a_percentile_is_a_value_that_was_measured_and_the_share_does_not_exceed_it() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile([float(number) for number in range(1, 201)], 0.99) == 198.0
    assert percentile([7.0], 0.01) == 7.0


@pytest.mark.parametrize(
    ("value", "bar", "at_most", "met"),
    [
        (10.0, 10.0, False, "yes"),
        (9.9, 10.0, False, "NO"),
        (6.0, 6.0, True, "yes"),
        (6.1, 6.0, True, "NO"),
        (0.5, 0.0, False, "we lose"),
        (1.5, 0.0, False, ""),
    ],
)
def test_a_bar_is_met_at_its_value_and_without_one_less_than_even_is_a_loss(
    value: float, bar: float, at_most: bool, met: str
) -> None:
    assert verdict(value, bar, at_most=at_most)["met"] == met


def test_pairs_out_of_order_are_counted_among_those_that_differ() -> None:
    assert out_of_order([1, 1, 2, 3]) == 0.0
    assert out_of_order([3, 2, 1]) == 1.0
    assert out_of_order([1, 3, 2, 2]) == 2 / 5
    assert out_of_order([4, 4]) == 0.0
