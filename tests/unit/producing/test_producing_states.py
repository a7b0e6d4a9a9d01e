"""The pure table: where a new request goes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.producing.states import BufferEvent, BufferState, Levels, Watermarks, settled, step

MARKS = Watermarks(max_items=100, max_bytes=1000, high=0.8, low=0.4)
levels = st.builds(Levels, items=st.integers(0, 120), bytes=st.integers(0, 1200), unread=st.integers(0, 50))


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
def test_the_table_with_a_journal(before: BufferState, happened: BufferEvent, after: BufferState) -> None:
    assert step(before, happened, has_journal=True) is after


def test_what_is_not_in_the_table_changes_nothing() -> None:
    told = {(BufferState.DIRECT, BufferEvent.MEMORY_HIGH), (BufferState.BLOCKED, BufferEvent.MEMORY_LOW)}
    for state in BufferState:
        for happened in BufferEvent:
            if (state, happened) not in told:
                assert step(state, happened, has_journal=False) is state


@given(st.sampled_from(BufferState), levels, st.booleans())
def test_a_settled_state_stays_as_it_is_while_the_levels_do(state: BufferState, at: Levels, has_journal: bool) -> None:
    once = settled(state, at, MARKS, has_journal=has_journal)
    assert settled(once, at, MARKS, has_journal=has_journal) is once


@given(st.sampled_from(BufferState), levels)
def test_nothing_goes_past_the_journal_while_it_holds_what_memory_does_not(state: BufferState, at: Levels) -> None:
    if state is not BufferState.DIRECT and at.unread:
        assert settled(state, at, MARKS, has_journal=True) is not BufferState.DIRECT


def test_between_the_marks_nothing_changes() -> None:
    for items in range(41, 80):
        at = Levels(items, 0, 5)
        assert settled(BufferState.SPILLING, at, MARKS, has_journal=True) is BufferState.SPILLING
        assert settled(BufferState.DRAINING, at, MARKS, has_journal=True) is BufferState.DRAINING


def test_bytes_alone_reach_the_high_mark_and_keep_from_the_low_one() -> None:
    assert settled(BufferState.DIRECT, Levels(1, 800, 0), MARKS, has_journal=True) is BufferState.SPILLING
    assert settled(BufferState.SPILLING, Levels(1, 401, 3), MARKS, has_journal=True) is BufferState.SPILLING
    assert settled(BufferState.SPILLING, Levels(1, 400, 3), MARKS, has_journal=True) is BufferState.DRAINING


def test_a_lone_request_fits_whatever_its_size_and_a_second_one_only_within_the_bounds() -> None:
    assert MARKS.fits(0, 0, 5000)
    assert MARKS.fits(1, 900, 100)
    assert not MARKS.fits(1, 900, 101)
    assert not MARKS.fits(100, 0, 1)


def test_without_a_journal_any_room_ends_the_blocking() -> None:
    assert settled(BufferState.DIRECT, Levels(80, 0, 0), MARKS, has_journal=False) is BufferState.BLOCKED
    assert settled(BufferState.BLOCKED, Levels(79, 0, 0), MARKS, has_journal=False) is BufferState.DIRECT
