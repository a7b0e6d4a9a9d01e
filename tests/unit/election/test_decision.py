from __future__ import annotations

import itertools

import pytest

from leaderq.election.decision import Decision, Effect, Input, Role, step

HELD = {Role.LEADING, Role.SUSPECT, Role.ENDING}
DEPOSING = {effect for effect in Effect if effect.name.startswith("DEPOSE_")}
BEGIN: Decision = (Role.LEADING, (Effect.BEGIN_TERM,))
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
STANDING: dict[Input, Decision] = {
    Input.FAILED: (Role.WAITING, (Effect.RETRY_SOON,)),
    Input.LOST: (Role.ENLISTING, (Effect.RETRY_SOON,)),
    Input.WITHDRAW: RELEASE,
}
ENDING: dict[Input, Decision] = {**OUSTED, Input.HANDED_OVER: RELEASE}
HOLDING: dict[Input, Decision] = {**ENDING, Input.TOLD: TOLD, Input.WITHDRAW: TOLD}
ROWS: dict[Role, dict[Input, Decision]] = {
    Role.IDLE: {Input.STAND: ENLIST},
    Role.ENLISTING: {
        Input.ENLISTED: LOOK,
        Input.FAILED: (Role.ENLISTING, (Effect.RETRY_SOON,)),
        **dict.fromkeys((Input.RETRY, Input.CONNECTED), ENLIST),
        Input.WITHDRAW: RELEASE,
    },
    Role.WAITING: {
        Input.BEHIND: (Role.WAITING, (Effect.LOOK_LATER,)),
        Input.FIRST: (Role.CLAIMING, (Effect.CLAIM,)),
        Input.ABSENT: ENLIST,
        Input.PASSED_OVER: (Role.ENLISTING, (Effect.REQUEUE,)),
        **dict.fromkeys((Input.CHANGED, Input.RETRY, Input.CONNECTED), LOOK),
        **STANDING,
    },
    Role.CLAIMING: {**STANDING, Input.WON: BEGIN, Input.BEATEN: LOOK},
    Role.LEADING: {**HOLDING, Input.SUSPENDED: PAUSE, Input.LATE: PAUSE},
    Role.SUSPECT: {**HOLDING, Input.HEARD: (Role.LEADING, (Effect.RESUME,))},
    Role.ENDING: ENDING,
    Role.OUSTED: {Input.HANDED_OVER: RELEASE},
    Role.RELEASING: {
        Input.RELEASED: (Role.IDLE, (Effect.SETTLE,)),
        Input.FAILED: (Role.RELEASING, (Effect.RETRY_SOON,)),
        **dict.fromkeys((Input.RETRY, Input.CONNECTED), RELEASE),
        Input.LOST: (Role.IDLE, (Effect.SETTLE,)),
        Input.STAND: (Role.ENLISTING, (Effect.SETTLE, Effect.ENLIST)),
    },
}


@pytest.mark.parametrize("role", Role)
def test_each_role_does_what_the_table_says_and_ignores_every_other_signal(role):
    expected = {signal: ROWS[role].get(signal, (role, ())) for signal in Input}
    assert {signal: step(role, signal) for signal in Input} == expected


def test_a_lease_is_kept_up_as_long_as_leadership_may_be_believed():
    assert {role for role in Role if role.holds_term} == HELD


def test_no_sequence_of_signals_leads_without_a_win_or_releases_under_running_code():
    """Every sequence of three signals from every role: the two rules the whole design rests on."""
    for start, signals in itertools.product(Role, itertools.product(Input, repeat=3)):
        role = start
        for signal in signals:
            before = role
            role, effects = step(role, signal)
            if role in HELD and before not in HELD:
                assert (before, signal) == (Role.CLAIMING, Input.WON)
            if Effect.RELEASE in effects and before in HELD | {Role.OUSTED}:
                assert signal is Input.HANDED_OVER
            if before in HELD and role not in HELD | {Role.RELEASING}:
                assert DEPOSING.intersection(effects)
