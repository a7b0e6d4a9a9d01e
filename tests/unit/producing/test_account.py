"""The account of requests, and the levels of a buffer, as values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.producing.account import (
    Balance,
    BufferEvent,
    BufferState,
    LossReason,
    RequestAccount,
    Settlement,
    Watermarks,
    settled,
    step,
)

FAILURES = {LossReason.PROCESS, LossReason.REFUSED, LossReason.ATTEMPTS}
CHOSEN = {LossReason.NEWEST, LossReason.OLDEST, LossReason.EXPIRED}


@pytest.mark.parametrize("reason", LossReason)
def test_a_loss_is_a_failure_or_a_drop_and_some_were_chosen(reason: LossReason) -> None:
    assert reason.is_failure is (reason in FAILURES)
    settlement = Settlement(lost={reason.value: 1})
    assert (bool(settlement), settlement.is_as_chosen) == (False, reason in CHOSEN)
    mixed = Settlement(lost={reason.value: 1, LossReason.CLOSED.value: 1})
    assert not mixed.is_as_chosen


def test_a_settlement_is_true_if_nothing_is_missing() -> None:
    assert Settlement() == Settlement(0, 0, 0, {}, (), None)
    for sound in (Settlement(), Settlement(confirmed=5, journaled=7)):
        assert (bool(sound), sound.is_as_chosen) == (True, True)
    for unsound in (Settlement(pending=1), Settlement(journal_error=OSError())):
        assert (bool(unsound), unsound.is_as_chosen) == (False, False)


def test_every_request_is_in_the_balance_once() -> None:
    account = RequestAccount()
    for _ in range(9):
        account.accept()
    account.recover(3)
    account.confirm(4)
    account.give_up(LossReason.EXPIRED, 2)
    account.give_up(LossReason.REFUSED)
    account.refused["full"] += 1
    balance = account.balance()
    assert balance == Balance(9, 3, 4, 5, {"expired": 2}, {"refused by the sink": 1}, {"full": 1})
    assert (balance.lost, balance.is_exact) == (3, True)
    for field in ("accepted", "recovered", "confirmed", "pending"):
        account = RequestAccount(9, 3, 4, 5, account.gone)
        setattr(account, field, getattr(account, field) + 1)
        assert not account.balance().is_exact


MARKS = Watermarks(200, 2000, high=0.5, low=0.25)


@pytest.mark.parametrize(
    ("items", "size", "is_low", "is_near", "is_high"),
    [
        (50, 500, True, False, False),
        (51, 0, False, False, False),
        (0, 501, False, False, False),
        (74, 749, False, False, False),
        (75, 0, False, True, False),
        (0, 750, False, True, False),
        (99, 999, False, True, False),
        (100, 0, False, True, True),
        (0, 1000, False, True, True),
    ],
)
def test_levels_are_shares_of_items_or_of_bytes(
    items: int, size: int, is_low: bool, is_near: bool, is_high: bool
) -> None:
    levels = MARKS.is_low(items, size), MARKS.is_near(items, size), MARKS.is_high(items, size)
    assert levels == (is_low, is_near, is_high)


def test_by_default_the_high_mark_is_all_and_the_low_mark_half() -> None:
    assert Watermarks(100, 1000) == Watermarks(100, 1000, 1.0, 0.5)


@pytest.mark.parametrize(
    ("items", "size", "more", "fits"),
    [
        (0, 0, 5000, True),
        (199, 0, 2000, True),
        (200, 0, 1, False),
        (199, 1, 2000, False),
        (1, 1999, 1, True),
    ],
)
def test_one_more_fits_within_the_bounds_and_a_lone_one_always(
    items: int, size: int, more: int, fits: bool
) -> None:
    assert MARKS.fits(items, size, more) is fits


D, S, R, B = (BufferState.DIRECT, BufferState.SPILLING, BufferState.DRAINING, BufferState.BLOCKED)
LOW, BETWEEN, HIGH = (10, 0), (60, 0), (100, 0)


@pytest.mark.parametrize(
    ("state", "level", "unread", "with_journal", "without"),
    [
        (D, LOW, 0, D, D),
        (D, LOW, 5, D, D),
        (D, BETWEEN, 0, D, D),
        (D, HIGH, 0, S, B),
        (S, LOW, 5, R, S),
        (S, LOW, 0, D, S),
        (S, BETWEEN, 0, S, S),
        (S, HIGH, 5, S, S),
        (R, LOW, 5, R, R),
        (R, LOW, 0, D, R),
        (R, BETWEEN, 0, D, R),
        (R, HIGH, 5, S, R),
        (R, HIGH, 0, S, R),
        (B, LOW, 0, B, D),
        (B, BETWEEN, 0, B, D),
        (B, HIGH, 0, B, B),
    ],
)
def test_levels_lead_to_a_state_which_does_not_flutter_between_the_marks(
    state: BufferState,
    level: tuple[int, int],
    unread: int,
    with_journal: BufferState,
    without: BufferState,
) -> None:
    assert settled(state, MARKS, *level, unread, has_journal=True) is with_journal
    assert settled(state, MARKS, *level, unread, has_journal=False) is without


levels = st.tuples(st.integers(0, 220), st.integers(0, 2400), st.integers(0, 50))


@pytest.mark.parametrize(
    ("before", "happened", "after"),
    [
        (D, BufferEvent.MEMORY_HIGH, S),
        (D, BufferEvent.JOURNAL_FULL, B),
        (S, BufferEvent.MEMORY_LOW, R),
        (S, BufferEvent.JOURNAL_FULL, B),
        (R, BufferEvent.MEMORY_HIGH, S),
        (R, BufferEvent.READ_UP, D),
        (R, BufferEvent.JOURNAL_FULL, B),
        (B, BufferEvent.JOURNAL_ROOM, S),
    ],
)
def test_the_table_with_a_journal(
    before: BufferState, happened: BufferEvent, after: BufferState
) -> None:
    assert step(before, happened, has_journal=True) is after


def test_what_is_not_in_the_table_changes_nothing() -> None:
    told = {(D, BufferEvent.MEMORY_HIGH), (B, BufferEvent.MEMORY_LOW)}
    for state in BufferState:
        for happened in BufferEvent:
            if (state, happened) not in told:
                assert step(state, happened, has_journal=False) is state


@given(st.sampled_from(BufferState), levels, st.booleans())
def test_a_settled_state_stays_as_it_is_while_the_levels_do(
    state: BufferState, at: tuple[int, int, int], has_journal: bool
) -> None:
    once = settled(state, MARKS, *at, has_journal=has_journal)
    assert settled(once, MARKS, *at, has_journal=has_journal) is once


@given(st.sampled_from(BufferState), levels)
def test_nothing_goes_past_the_journal_while_it_holds_what_memory_does_not(
    state: BufferState, at: tuple[int, int, int]
) -> None:
    if state is not D and at[2]:
        assert settled(state, MARKS, *at, has_journal=True) is not D
