"""The decision table row by row, and the lease."""

from __future__ import annotations

import itertools

import pytest

from leaderq.election.decision import Decision, Effect, Input, Role, step
from leaderq.election.tenure import Lease, LeaseState

DEPOSING = {effect for effect in Effect if effect.name.startswith("DEPOSE_")}
LOOK: Decision = (Role.WAITING, (Effect.SURVEY,))
ENLIST: Decision = (Role.ENLISTING, (Effect.ENLIST,))
RELEASE: Decision = (Role.RELEASING, (Effect.RELEASE,))
TOLD: Decision = (Role.ENDING, (Effect.WIND_UP,))
PAUSE: Decision = (Role.SUSPECT, (Effect.PAUSE,))
OUSTED: dict[Input, Decision] = {
    Input.LEASE_OVER: (Role.OUSTED, (Effect.DEPOSE_LEASE, Effect.DROP_CONNECTION)),
    Input.LOST: (Role.OUSTED, (Effect.DEPOSE_SESSION,)),
    Input.FENCED: (Role.OUSTED, (Effect.DEPOSE_FENCED,)),
    Input.GONE: (Role.OUSTED, (Effect.DEPOSE_NODE_DELETED,)),
}
ROWS: dict[Role, dict[Input, Decision]] = {
    Role.IDLE: {Input.STAND: ENLIST},
    Role.ENLISTING: {
        Input.ENLISTED: LOOK,
        Input.FAILED: (Role.ENLISTING, (Effect.RETRY_SOON,)),
        Input.RETRY: ENLIST,
        Input.CONNECTED: ENLIST,
        Input.WITHDRAW: RELEASE,
    },
    Role.WAITING: {
        Input.BEHIND: (Role.WAITING, (Effect.LOOK_LATER,)),
        Input.FIRST: (Role.CLAIMING, (Effect.CLAIM,)),
        Input.ABSENT: ENLIST,
        Input.PASSED_OVER: (Role.ENLISTING, (Effect.REQUEUE,)),
        Input.CHANGED: LOOK,
        Input.RETRY: LOOK,
        Input.CONNECTED: LOOK,
        Input.FAILED: (Role.WAITING, (Effect.RETRY_SOON,)),
        Input.LOST: (Role.ENLISTING, (Effect.RETRY_SOON,)),
        Input.WITHDRAW: RELEASE,
    },
    Role.CLAIMING: {
        Input.WON: (Role.LEADING, (Effect.BEGIN_TERM,)),
        Input.BEATEN: LOOK,
        Input.FAILED: (Role.WAITING, (Effect.RETRY_SOON,)),
        Input.LOST: (Role.ENLISTING, (Effect.RETRY_SOON,)),
        Input.WITHDRAW: RELEASE,
    },
    Role.LEADING: {
        **OUSTED,
        Input.SUSPENDED: PAUSE,
        Input.LATE: PAUSE,
        Input.TOLD: TOLD,
        Input.WITHDRAW: TOLD,
        Input.HANDED_OVER: RELEASE,
    },
    Role.SUSPECT: {
        **OUSTED,
        Input.CONNECTED: (Role.SUSPECT, (Effect.RENEW,)),
        Input.HEARD: (Role.LEADING, (Effect.RESUME,)),
        Input.TOLD: TOLD,
        Input.WITHDRAW: TOLD,
        Input.HANDED_OVER: RELEASE,
    },
    Role.ENDING: {
        **OUSTED,
        Input.CONNECTED: (Role.ENDING, (Effect.RENEW,)),
        Input.HANDED_OVER: RELEASE,
    },
    Role.OUSTED: {Input.HANDED_OVER: RELEASE},
    Role.RELEASING: {
        Input.RELEASED: (Role.IDLE, (Effect.SETTLE,)),
        Input.FAILED: (Role.RELEASING, (Effect.RETRY_SOON,)),
        Input.RETRY: RELEASE,
        Input.CONNECTED: RELEASE,
        Input.LOST: (Role.IDLE, (Effect.SETTLE,)),
        Input.STAND: (Role.ENLISTING, (Effect.SETTLE, Effect.ENLIST)),
    },
}


@pytest.mark.parametrize("role", Role)
def test_each_role_does_what_the_table_says_and_ignores_every_other_signal(role: Role) -> None:
    expected = {signal: ROWS[role].get(signal, (role, ())) for signal in Input}
    assert {signal: step(role, signal) for signal in Input} == expected


def test_a_lease_is_kept_up_as_long_as_leadership_may_be_believed() -> None:
    held = {Role.LEADING, Role.SUSPECT, Role.ENDING}
    assert {role: role.holds_term for role in Role} == {role: role in held for role in Role}


def test_no_sequence_of_signals_leads_without_a_win_or_releases_under_running_code() -> None:
    """Every sequence of three signals from every role: the two rules the whole design rests on."""
    for start, signals in itertools.product(Role, itertools.product(Input, repeat=3)):
        role = start
        for signal in signals:
            before = role
            role, effects = step(role, signal)
            if role in (Role.LEADING, Role.SUSPECT, Role.ENDING) and before not in (
                Role.LEADING,
                Role.SUSPECT,
                Role.ENDING,
            ):
                assert (before, signal) == (Role.CLAIMING, Input.WON)
            if Effect.RELEASE in effects and before in (
                Role.LEADING,
                Role.SUSPECT,
                Role.ENDING,
                Role.OUSTED,
            ):
                assert signal is Input.HANDED_OVER
            if before.holds_term and not role.holds_term and role is not Role.RELEASING:
                assert DEPOSING.intersection(effects)


# -- the lease, as lists of sends and acknowledgements

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
