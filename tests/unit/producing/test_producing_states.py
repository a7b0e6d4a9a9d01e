"""The pure table: where a new request goes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.producing.account import BufferEvent, BufferState, Watermarks, settled, step

MARKS = Watermarks(max_items=100, max_bytes=1000, high=0.8, low=0.4)
Levels = tuple[int, int, int]  # items and bytes in memory, requests in the journal only
levels = st.tuples(st.integers(0, 120), st.integers(0, 1200), st.integers(0, 50))


@pytest.mark.parametrize(
    ("before", "happened", "after"),
    [
        (BufferState.DIRECT, BufferEvent.MEMORY_HIGH, BufferState.SPILLING),
        (BufferState.DIRECT, BufferEvent.JOURNAL_FULL, BufferState.BLOCKED),
        (BufferState.SPILLING, BufferEvent.MEMORY_LOW, BufferState.DRAINING),
        (BufferState.SPILLING, BufferEvent.JOURNAL_FULL, BufferState.BLOCKED),
        (BufferState.DRAINING, BufferEvent.MEMORY_HIGH, BufferState.SPILLING),
        (BufferState.DRAINING, BufferEvent.READ_UP, BufferState.DIRECT),
        (BufferState.DRAINING, BufferEvent.JOURNAL_FULL, BufferState.BLOCKED),
        (BufferState.BLOCKED, BufferEvent.JOURNAL_ROOM, BufferState.SPILLING),
    ],
)
def test_the_table_with_a_journal(
    before: BufferState, happened: BufferEvent, after: BufferState
) -> None:
    assert step(before, happened, has_journal=True) is after


def test_what_is_not_in_the_table_changes_nothing() -> None:
    told = {
        (BufferState.DIRECT, BufferEvent.MEMORY_HIGH),
        (BufferState.BLOCKED, BufferEvent.MEMORY_LOW),
    }
    for state in BufferState:
        for happened in BufferEvent:
            if (state, happened) not in told:
                assert step(state, happened, has_journal=False) is state


@given(st.sampled_from(BufferState), levels, st.booleans())
def test_a_settled_state_stays_as_it_is_while_the_levels_do(
    state: BufferState, at: Levels, has_journal: bool
) -> None:
    once = settled(state, MARKS, *at, has_journal=has_journal)
    assert settled(once, MARKS, *at, has_journal=has_journal) is once


@given(st.sampled_from(BufferState), levels)
def test_nothing_goes_past_the_journal_while_it_holds_what_memory_does_not(
    state: BufferState, at: Levels
) -> None:
    if state is not BufferState.DIRECT and at[2]:
        assert settled(state, MARKS, *at, has_journal=True) is not BufferState.DIRECT


def test_between_the_marks_nothing_changes() -> None:
    for items in range(41, 80):
        at = (items, 0, 5)
        assert settled(BufferState.SPILLING, MARKS, *at, has_journal=True) is BufferState.SPILLING
        assert settled(BufferState.DRAINING, MARKS, *at, has_journal=True) is BufferState.DRAINING


def test_bytes_alone_reach_the_high_mark_and_keep_from_the_low_one() -> None:
    assert settled(BufferState.DIRECT, MARKS, 1, 800, 0, has_journal=True) is BufferState.SPILLING
    assert settled(BufferState.SPILLING, MARKS, 1, 401, 3, has_journal=True) is BufferState.SPILLING
    assert settled(BufferState.SPILLING, MARKS, 1, 400, 3, has_journal=True) is BufferState.DRAINING


def test_a_lone_request_fits_whatever_its_size_and_a_second_one_only_within_the_bounds() -> None:
    assert MARKS.fits(0, 0, 5000)
    assert MARKS.fits(1, 900, 100)
    assert not MARKS.fits(1, 900, 101)
    assert not MARKS.fits(100, 0, 1)


def test_without_a_journal_any_room_ends_the_blocking() -> None:
    assert settled(BufferState.DIRECT, MARKS, 80, 0, 0, has_journal=False) is BufferState.BLOCKED
    assert settled(BufferState.BLOCKED, MARKS, 79, 0, 0, has_journal=False) is BufferState.DIRECT
