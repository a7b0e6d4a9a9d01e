"""The threshold of the garbage collector is raised for as long as somebody wants it, and put back."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from leaderq.kafka.consuming.gc_threshold import collecting_seldom


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_it_is_raised_and_put_back() -> None:
    with collecting_seldom(5000):
        assert gc.get_threshold() == (5000, 10, 10)
    assert gc.get_threshold() == (700, 10, 10)


def test_it_is_put_back_after_an_error() -> None:
    with pytest.raises(LookupError), collecting_seldom(5000):
        raise LookupError
    assert gc.get_threshold() == (700, 10, 10)


def test_of_several_the_largest_holds_as_long_as_it_is_wanted() -> None:
    first, second = collecting_seldom(5000), collecting_seldom(9000)
    first.__enter__()
    second.__enter__()
    assert gc.get_threshold()[0] == 9000
    second.__exit__(None, None, None)
    assert gc.get_threshold()[0] == 5000
    first.__exit__(None, None, None)
    assert gc.get_threshold()[0] == 700


def test_the_first_may_leave_before_the_last() -> None:
    first, second = collecting_seldom(5000), collecting_seldom(5000)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert gc.get_threshold()[0] == 5000
    second.__exit__(None, None, None)
    assert gc.get_threshold()[0] == 700


@pytest.mark.parametrize("set_by_user", [(0, 10, 10), (8000, 5, 5)])
def test_a_collector_that_is_off_or_looks_more_seldom_is_left_alone(set_by_user: tuple[int, int, int]) -> None:
    gc.set_threshold(*set_by_user)
    with collecting_seldom(5000):
        assert gc.get_threshold() == set_by_user
    assert gc.get_threshold() == set_by_user


def test_what_somebody_else_set_meanwhile_stays() -> None:
    with collecting_seldom(5000):
        gc.set_threshold(1234, 7, 7)
    assert gc.get_threshold() == (1234, 7, 7)


def test_nothing_wanted_changes_nothing() -> None:
    with collecting_seldom(None):
        assert gc.get_threshold() == (700, 10, 10)
