"""The account of requests, and the levels of a buffer, as values."""

from __future__ import annotations

from dataclasses import replace

import pytest

from leaderq.producing.account import NEAR, Balance, BufferState, LossReason, Settlement, Watermarks

FAILURES = {LossReason.REFUSED, LossReason.ATTEMPTS}
CHOSEN = {LossReason.NEWEST, LossReason.OLDEST, LossReason.EXPIRED}


@pytest.mark.parametrize("reason", LossReason)
def test_a_loss_is_a_failure_or_a_drop_and_some_were_chosen(reason):
    assert reason.is_failure is (reason in FAILURES)
    settlement = Settlement(lost={reason.value: 1})
    assert (bool(settlement), settlement.is_as_chosen) == (False, reason in CHOSEN)
    mixed = Settlement(lost={reason.value: 1, LossReason.CLOSED.value: 1})
    assert not mixed.is_as_chosen


def test_a_settlement_is_true_if_nothing_is_missing():
    assert Settlement() == Settlement(0, 0, 0, {}, (), None)
    for sound in (Settlement(), Settlement(confirmed=5, journaled=7)):
        assert (bool(sound), sound.is_as_chosen) == (True, True)
    for unsound in (Settlement(pending=1), Settlement(journal_error=OSError())):
        assert (bool(unsound), unsound.is_as_chosen) == (False, False)


def test_a_balance_is_exact_if_every_request_is_in_it_once():
    balance = Balance(9, 3, 4, 5, {"expired": 2}, {"refused by the sink": 1}, {"full": 1})
    assert (balance.lost, balance.is_exact) == (3, True)
    for field in ("accepted", "recovered", "confirmed", "pending"):
        assert not replace(balance, **{field: 0}).is_exact


MARKS = Watermarks(200, 2000)


@pytest.mark.parametrize(
    ("items", "size", "is_near", "is_high", "most"),
    [
        (0, 0, False, False, 5000),  # a lone one always fits
        (149, 1499, False, False, 501),
        (150, 0, True, False, 2000),
        (0, 1500, True, False, 5000),
        (199, 1999, True, False, 1),
        (200, 0, True, True, 0),
        (1, 2000, True, True, 0),
    ],
)
def test_levels_are_shares_of_items_or_of_bytes_and_what_fits_is_within_both(
    items, size, is_near, is_high, most
):
    share = MARKS.share(items, size)
    assert (share >= NEAR, share >= 1) == (is_near, is_high)
    assert not most or MARKS.fits(items, size, most)
    assert items == 0 or not MARKS.fits(items, size, most + 1)


D, S, R, B = (BufferState.DIRECT, BufferState.SPILLING, BufferState.DRAINING, BufferState.BLOCKED)
LOW, BETWEEN, HIGH = 0.5, 0.51, 1.0


@pytest.mark.parametrize(
    ("state", "level", "is_read_up", "after"),
    [
        (D, LOW, True, D),
        (D, LOW, False, R),
        (D, BETWEEN, True, D),
        (D, HIGH, True, S),
        (S, LOW, False, R),
        (S, LOW, True, D),
        (S, BETWEEN, False, S),
        (S, HIGH, False, S),
        (R, LOW, False, R),
        (R, BETWEEN, True, D),
        (R, BETWEEN, False, R),
        (R, HIGH, False, S),
        (R, HIGH, True, S),
    ],
)
def test_levels_lead_to_a_state_which_does_not_flutter_between_the_marks(
    state, level, is_read_up, after
):
    assert MARKS.next_level(state, level, has_journal=True, is_read_up=is_read_up) is after
    without = MARKS.next_level(state, level, has_journal=False, is_read_up=True)
    assert without is (B if level is HIGH else D)
