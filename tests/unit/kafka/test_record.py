"""Several sequences as one."""

from __future__ import annotations

import pytest

from leaderq.kafka.record import Chained

PARTS = [[1, 2], [], [3], [4, 5, 6]]
FLAT = [1, 2, 3, 4, 5, 6]


def test_it_is_what_a_list_of_all_would_be() -> None:
    chained = Chained(PARTS)
    assert list(chained) == FLAT
    assert chained == FLAT
    assert len(chained) == len(FLAT)
    assert repr(chained) == repr(FLAT)
    assert list(reversed(chained)) == FLAT[::-1]
    assert 5 in chained
    assert chained.index(4) == 3


@pytest.mark.parametrize("index", range(-6, 6))
def test_elements_are_found_by_index(index: int) -> None:
    assert Chained(PARTS)[index] == FLAT[index]


@pytest.mark.parametrize("index", [-7, 6, 100])
def test_an_index_outside_is_refused(index: int) -> None:
    with pytest.raises(IndexError):
        Chained(PARTS)[index]


@pytest.mark.parametrize("cut", [slice(1, 4), slice(None), slice(-2, None), slice(None, None, 2)])
def test_slices_are_those_of_a_list(cut: slice) -> None:
    assert Chained(PARTS)[cut] == FLAT[cut]


def test_nothing_is_empty() -> None:
    assert not Chained([])
    assert list(Chained([[], []])) == []
    assert Chained([[1]]) != [2]
    assert Chained([[1]]) != 1
