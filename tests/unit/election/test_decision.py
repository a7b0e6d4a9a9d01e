"""The decision table, as lists of signals."""

from __future__ import annotations

import itertools

import pytest

from leaderq.election.decision import Effect, Input, Role, step

DEPOSING = {effect for effect in Effect if effect.name.startswith("DEPOSE_")}
TO_LEADING = [Input.STAND, Input.ENLISTED, Input.FIRST, Input.WON]


def follow(signals: list[Input], role: Role = Role.IDLE) -> tuple[Role, list[Effect]]:
    done: list[Effect] = []
    for signal in signals:
        role, effects = step(role, signal)
        done.extend(effects)
    return role, done


def test_a_candidate_that_is_first_claims_and_leads():
    role, done = follow(TO_LEADING)
    assert role is Role.LEADING
    assert done == [Effect.ENLIST, Effect.SURVEY, Effect.CLAIM, Effect.BEGIN_TERM]


def test_a_deleted_predecessor_is_not_yet_leadership():
    role, done = follow([Input.STAND, Input.ENLISTED, Input.BEHIND, Input.CHANGED])
    assert role is Role.WAITING
    assert done[-1] is Effect.SURVEY


def test_a_claim_without_an_answer_is_looked_into_and_not_believed():
    role, done = follow([*TO_LEADING[:-1], Input.FAILED, Input.RETRY])
    assert role is Role.WAITING
    assert Effect.BEGIN_TERM not in done
    assert done[-1] is Effect.SURVEY


def test_an_answer_to_a_claim_that_was_given_up_begins_no_term():
    role, done = follow([*TO_LEADING[:-1], Input.FAILED, Input.WON])
    assert role is Role.WAITING
    assert Effect.BEGIN_TERM not in done


def test_silence_pauses_and_an_acknowledgement_resumes_the_same_term():
    role, done = follow([*TO_LEADING, Input.SUSPENDED, Input.CONNECTED, Input.HEARD])
    assert role is Role.LEADING
    assert done[-3:] == [Effect.PAUSE, Effect.RENEW, Effect.RESUME]


def test_being_connected_again_does_not_resume_without_an_acknowledged_write():
    role, _ = follow([*TO_LEADING, Input.SUSPENDED, Input.CONNECTED])
    assert role is Role.SUSPECT


@pytest.mark.parametrize(
    ("signal", "effect"),
    [
        (Input.LEASE_OVER, Effect.DEPOSE_LEASE),
        (Input.LOST, Effect.DEPOSE_SESSION),
        (Input.FENCED, Effect.DEPOSE_FENCED),
        (Input.GONE, Effect.DEPOSE_NODE_DELETED),
    ],
)
@pytest.mark.parametrize("before", [[], [Input.SUSPENDED], [Input.TOLD]])
def test_a_leader_is_deposed_at_once_and_lets_go_only_when_its_code_has_returned(
    before, signal, effect
):
    role, done = follow([*TO_LEADING, *before, signal])
    assert role is Role.OUSTED
    assert effect in done
    assert Effect.RELEASE not in done
    role, done = follow([Input.CONNECTED, Input.HEARD, Input.WITHDRAW, Input.HANDED_OVER], role)
    assert role is Role.RELEASING
    assert done == [Effect.RELEASE]


def test_a_silent_connection_is_dropped_when_the_lease_is_over():
    _, done = follow([*TO_LEADING, Input.LEASE_OVER])
    assert done[-1] is Effect.DROP_CONNECTION


def test_a_term_that_is_told_to_end_is_released_only_after_the_hand_over():
    role, done = follow([*TO_LEADING, Input.TOLD])
    assert (role, done[-1]) == (Role.ENDING, Effect.WIND_UP)
    role, done = follow([Input.HANDED_OVER, Input.RELEASED], role)
    assert (role, done) == (Role.IDLE, [Effect.RELEASE, Effect.SETTLE])


def test_a_release_is_repeated_until_it_is_confirmed():
    role, done = follow(
        [*TO_LEADING, Input.WITHDRAW, Input.HANDED_OVER, Input.FAILED, Input.RETRY, Input.CONNECTED]
    )
    assert role is Role.RELEASING
    assert done.count(Effect.RELEASE) == 3


@pytest.mark.parametrize("before", [TO_LEADING[:1], TO_LEADING[:2], TO_LEADING[:3]])
def test_withdrawing_before_winning_gives_the_znode_back(before):
    role, done = follow([*before, Input.WITHDRAW])
    assert role is Role.RELEASING
    assert done[-1] is Effect.RELEASE


@pytest.mark.parametrize("before", [TO_LEADING[:2], TO_LEADING[:3]])
def test_a_new_session_never_adopts_the_znode_of_the_old_one(before):
    role, done = follow([*before, Input.LOST, Input.CONNECTED])
    assert role is Role.ENLISTING
    assert done[-1] is Effect.ENLIST


def test_an_operators_choice_sends_the_others_to_the_end_of_the_line():
    role, done = follow([Input.STAND, Input.ENLISTED, Input.PASSED_OVER])
    assert role is Role.ENLISTING
    assert done[-1] is Effect.REQUEUE


def test_no_sequence_of_signals_leads_without_a_win_or_releases_under_running_code():
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
