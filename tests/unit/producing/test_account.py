"""The account of requests, and the levels of a buffer, as values."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from leaderq.producing.account import NEAR, Balance, BufferState, LossReason, Settlement
from leaderq.producing.options import ProducerOptions

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


MARKS: Any = SimpleNamespace(max_items=200, max_bytes=2000)


@pytest.mark.parametrize(
    ("items", "size", "is_near", "is_high", "is_over"),
    [
        (0, 0, False, False, False),
        (149, 1499, False, False, False),
        (150, 0, True, False, False),
        (0, 1500, True, False, False),
        (199, 1999, True, False, False),
        (200, 0, True, True, False),
        (1, 2000, True, True, False),
        (201, 0, True, True, True),
        (1, 2001, True, True, True),
    ],
)
def test_levels_are_shares_of_items_or_of_bytes(items, size, is_near, is_high, is_over):
    share = ProducerOptions.share(MARKS, items, size)
    assert (share >= NEAR, share >= 1, share > 1) == (is_near, is_high, is_over)


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
    assert state.after(level, has_journal=True, is_read_up=is_read_up) is after
    without = state.after(level, has_journal=False, is_read_up=True)
    assert without is (B if level is HIGH else D)
