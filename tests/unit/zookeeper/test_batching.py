from __future__ import annotations

from concurrent.futures import Future

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.errors import BadVersion, LeaderqError, NotConnected, SessionExpired
from leaderq.zookeeper.batches import _Batch, _blamed, _Group, _parts
from leaderq.zookeeper.wire import Check, Delete


def group(count: int) -> _Group:
    return _Group((Check("/a"),) * count, 1, Future())


@pytest.mark.parametrize(("index", "position", "own_index"), [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 2, 0), (5, 2, 2)])
def test_the_blame_falls_on_the_group_whose_operation_failed(index: int, position: int, own_index: int) -> None:
    error = BadVersion("x", index=index)
    assert _blamed([group(2), group(1), group(3)], error) == (position, error)
    assert error.index == own_index


def test_no_group_is_to_blame_for_an_error_of_the_whole() -> None:
    assert _blamed([group(1), group(1)], SessionExpired("x")) is None
    assert _blamed([group(1), group(1)], NotConnected("x")) is None


def test_a_group_alone_takes_any_error() -> None:
    error = LeaderqError("x")
    assert _blamed([group(1)], error) == (0, error)


@given(size=st.integers(1, 50), data=st.data(), has_failed=st.booleans())
def test_what_is_sent_again_is_everything_but_the_bad_group_in_order(
    size: int, data: st.DataObject, has_failed: bool
) -> None:
    groups = [group(1) for _ in range(size)]
    position = data.draw(st.integers(0, size - 1))
    parts = list(_parts(_Batch(groups, has_failed), position))
    assert [one for part in parts for one in part.groups] == groups[:position] + groups[position + 1 :]
    assert all(part.groups and part.has_failed for part in parts)


def test_operations_are_values() -> None:
    assert Delete("/a") == Delete("/a", -1)
    assert len({Delete("/a"), Delete("/a")}) == 1
