from __future__ import annotations

import pytest

from leaderq.zookeeper.owned import BACKOFF_S, STUCK_S, ClientObservation, TimeWithoutAttempt, pause_s, replacement_reason


@pytest.mark.parametrize(
    ("has_ended", "is_connected", "quiet_s", "is_complaint"),
    [
        (False, True, 0.0, False),
        (False, True, 1000.0, False),
        (False, False, STUCK_S - 0.1, False),
        (False, False, STUCK_S + 0.1, True),
        (True, True, 0.0, True),
        (True, False, 0.0, True),
    ],
)
def test_a_client_is_replaced_only_if_it_ended_or_no_longer_tries(
    has_ended: bool, is_connected: bool, quiet_s: float, is_complaint: bool
) -> None:
    sight = ClientObservation(has_ended=has_ended, is_connected=is_connected, quiet_s=quiet_s, stuck_after_s=STUCK_S)
    assert (replacement_reason(sight) is not None) is is_complaint


def test_the_first_replacement_is_immediate_and_the_pauses_grow_to_a_cap() -> None:
    assert pause_s(0, 1.0) == 0.0
    pauses = [pause_s(count, 1.0) for count in range(1, 40)]
    assert pauses == sorted(pauses)
    assert pauses[0] == BACKOFF_S[0]
    assert pauses[-1] == BACKOFF_S[1]


def test_chance_spreads_a_pause_over_its_upper_half() -> None:
    assert pause_s(3, 0.0) == pause_s(3, 1.0) / 2


def test_a_connection_lost_after_hours_is_not_quiet_for_hours() -> None:
    quiet, client = TimeWithoutAttempt(), object()
    quiet.look(0.0, client, 1, is_connected=True)
    assert quiet.look(7200.0, client, 1, is_connected=False) == 0.0
    assert quiet.look(7203.0, client, 1, is_connected=False) == 3.0
    assert quiet.look(7204.0, client, 2, is_connected=False) == 0.0
    assert quiet.look(7209.0, client, 2, is_connected=False) == 5.0


def test_a_new_client_begins_anew() -> None:
    quiet, client, another = TimeWithoutAttempt(), object(), object()
    quiet.look(0.0, client, 1, is_connected=False)
    assert quiet.look(9.0, another, 1, is_connected=False) == 0.0
