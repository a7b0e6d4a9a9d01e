"""The pure table: where a new request goes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.producing.states import Input, Levels, Marks, State, settled, step

MARKS = Marks(max_items=100, max_bytes=1000, high=0.8, low=0.4)
levels = st.builds(Levels, items=st.integers(0, 120), bytes=st.integers(0, 1200), unread=st.integers(0, 50))


@pytest.mark.parametrize(
    ("before", "happened", "after"),
    [
        (State.DIRECT, Input.MEMORY_HIGH, State.SPILLING),
        (State.DIRECT, Input.JOURNAL_FULL, State.BLOCKED),
        (State.SPILLING, Input.MEMORY_LOW, State.DRAINING),
        (State.SPILLING, Input.JOURNAL_FULL, State.BLOCKED),
        (State.DRAINING, Input.MEMORY_HIGH, State.SPILLING),
        (State.DRAINING, Input.READ_UP, State.DIRECT),
        (State.DRAINING, Input.JOURNAL_FULL, State.BLOCKED),
        (State.BLOCKED, Input.JOURNAL_ROOM, State.SPILLING),
    ],
)
def test_the_table_with_a_journal(before: State, happened: Input, after: State) -> None:
    assert step(before, happened, has_journal=True) is after


def test_what_is_not_in_the_table_changes_nothing() -> None:
    told = {(State.DIRECT, Input.MEMORY_HIGH), (State.BLOCKED, Input.MEMORY_LOW)}
    for state in State:
        for happened in Input:
            if (state, happened) not in told:
                assert step(state, happened, has_journal=False) is state


@given(st.sampled_from(State), levels, st.booleans())
def test_a_settled_state_stays_as_it_is_while_the_levels_do(state: State, at: Levels, has_journal: bool) -> None:
    once = settled(state, at, MARKS, has_journal=has_journal)
    assert settled(once, at, MARKS, has_journal=has_journal) is once


@given(st.sampled_from(State), levels)
def test_nothing_goes_past_the_journal_while_it_holds_what_memory_does_not(state: State, at: Levels) -> None:
    if state is not State.DIRECT and at.unread:
        assert settled(state, at, MARKS, has_journal=True) is not State.DIRECT


def test_between_the_marks_nothing_changes() -> None:
    for items in range(41, 80):
        at = Levels(items, 0, 5)
        assert settled(State.SPILLING, at, MARKS, has_journal=True) is State.SPILLING
        assert settled(State.DRAINING, at, MARKS, has_journal=True) is State.DRAINING


def test_bytes_alone_reach_the_high_mark_and_keep_from_the_low_one() -> None:
    assert settled(State.DIRECT, Levels(1, 800, 0), MARKS, has_journal=True) is State.SPILLING
    assert settled(State.SPILLING, Levels(1, 401, 3), MARKS, has_journal=True) is State.SPILLING
    assert settled(State.SPILLING, Levels(1, 400, 3), MARKS, has_journal=True) is State.DRAINING


def test_a_lone_request_fits_whatever_its_size_and_a_second_one_only_within_the_bounds() -> None:
    assert MARKS.fits(0, 0, 5000)
    assert MARKS.fits(1, 900, 100)
    assert not MARKS.fits(1, 900, 101)
    assert not MARKS.fits(100, 0, 1)


def test_without_a_journal_any_room_ends_the_blocking() -> None:
    assert settled(State.DIRECT, Levels(80, 0, 0), MARKS, has_journal=False) is State.BLOCKED
    assert settled(State.BLOCKED, Levels(79, 0, 0), MARKS, has_journal=False) is State.DIRECT
