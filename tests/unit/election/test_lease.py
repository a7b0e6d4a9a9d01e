"""The lease, as lists of sends and acknowledgements."""

from __future__ import annotations

from leaderq.election.tenure import Lease, LeaseState

T = 6.0


def lease() -> Lease:
    return Lease(T, 100.0, 100.0)


def test_trust_ends_two_thirds_of_the_time_out_after_the_send_time():
    assert lease().trust(103.99) is LeaseState.LATE
    assert lease().trust(104.0) is LeaseState.NONE


def test_an_acknowledgement_counts_from_when_its_write_was_sent_not_from_when_it_came():
    renewed = lease().sent(101.0).acknowledged(101.0)
    assert renewed.ends_s == 105.0


def test_a_write_that_is_only_sent_proves_nothing():
    assert lease().sent(103.0).ends_s == 104.0


def test_acknowledgements_in_the_wrong_order_do_not_shorten_the_lease():
    renewed = lease().sent(101.0).sent(102.0).acknowledged(102.0).acknowledged(101.0)
    assert renewed.ends_s == 106.0


def test_two_unanswered_renewals_are_suspicious():
    assert lease().trust(101.99) is LeaseState.FULL
    assert lease().trust(102.0) is LeaseState.LATE


def test_renewals_are_due_every_sixth_of_the_time_out():
    assert lease().renew_s == 101.0
    assert lease().sent(101.0).renew_s == 102.0


def test_the_next_wake_is_whatever_comes_first():
    assert lease().wake_s(100.0) == 101.0
    assert lease().sent(101.5).wake_s(101.6) == 102.0
    assert lease().sent(103.5).wake_s(103.6) == 104.0


def test_the_lease_ends_before_any_session_of_that_time_out_can():
    # The server may have heard of the session half a tick (T/4 at most) before the write was sent,
    # never earlier.
    assert lease().ends_s < 100.0 - T / 4 + T


def test_the_smallest_time_out_granted_counts_from_then_on():
    shortened = lease().granted(3.0)
    assert shortened.ends_s == 102.0
    assert shortened.granted(60.0).ends_s == 102.0
