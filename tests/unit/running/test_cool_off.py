"""How long a process waits before it stands again."""

from __future__ import annotations

import pytest

from leaderq.running.supervision import GIVE_WAY_S, CoolOff, after_term
from leaderq.term import Reason
from leaderq.threads import Retry

POLICY = Retry(attempts=3, first_s=1.0, most_s=30.0)


def row(*reasons: Reason, lasted_s: float = 0.1) -> CoolOff:
    record = CoolOff()
    for reason in reasons:
        record = after_term(record, reason, lasted_s, POLICY, chance=0.0)
    return record


@pytest.mark.parametrize("reason", [Reason.STEP_DOWN, Reason.TRANSFER])
def test_who_was_asked_to_step_down_only_gives_way_for_a_moment(reason):
    assert row(reason) == CoolOff(seconds=GIVE_WAY_S)


def test_a_career_that_ends_its_own_term_stands_again_after_a_pause_and_has_not_failed():
    assert row(Reason.FAILED, Reason.WITHDRAWN) == CoolOff(seconds=POLICY.first_s)


@pytest.mark.parametrize(
    "reason", [Reason.SESSION, Reason.LEASE, Reason.FENCED, Reason.NODE_DELETED]
)
def test_being_deposed_is_no_failure_but_waits_a_moment(reason):
    record = row(reason, reason, reason, reason)
    assert (record.seconds, record.failures) == (1.0, 0)


def test_failures_in_a_row_wait_longer_each_time_and_then_yield():
    assert [row(*[Reason.FAILED] * n).seconds for n in (1, 2, 3, 4)] == [1.0, 2.0, 30.0, 30.0]
    assert "3 terms in a row" in row(*[Reason.FAILED] * 3).why


def test_being_deposed_between_two_failures_does_not_break_the_row():
    assert row(Reason.FAILED, Reason.SESSION, Reason.FAILED).failures == 2


def test_a_planned_end_clears_the_row():
    assert row(Reason.FAILED, Reason.TRANSFER, Reason.FAILED).failures == 1


def test_a_long_good_term_before_the_failure_clears_the_row():
    assert after_term(CoolOff(failures=2), Reason.FAILED, 31.0, POLICY, chance=0.0).failures == 1


def test_jitter_spreads_the_wait_over_its_upper_half():
    assert after_term(CoolOff(), Reason.LEASE, 0.0, POLICY, chance=1.0).seconds == 0.5


def test_the_thousandth_failure_in_a_row_is_waited_for_like_the_hundredth():
    patient = Retry(attempts=1_000_000, first_s=1.0, most_s=30.0)
    assert (
        after_term(CoolOff(failures=5000), Reason.FAILED, 0.0, patient, chance=0.0).seconds == 30.0
    )


def test_a_pause_longer_than_the_yield_is_no_longer_than_the_yield():
    assert (
        after_term(
            CoolOff(), Reason.LEASE, 0.0, Retry(attempts=3, first_s=60.0, most_s=30.0), chance=0.0
        ).seconds
        == 30.0
    )
