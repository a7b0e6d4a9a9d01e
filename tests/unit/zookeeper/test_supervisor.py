from __future__ import annotations

import pytest

from leaderq.zookeeper.client import (
    STUCK_S,
    ClientObservation,
    TimeWithoutAttempt,
    replacement_reason,
)


@pytest.mark.parametrize(
    ("has_ended", "is_connected", "idle_s", "must_go"),
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
    has_ended: bool, is_connected: bool, idle_s: float, must_go: bool
) -> None:
    seen = ClientObservation(has_ended, False, is_connected, idle_s, STUCK_S)
    assert (replacement_reason(seen) is not None) is must_go


def test_a_client_that_ended_because_it_was_refused_is_replaced_for_that() -> None:
    assert replacement_reason(ClientObservation(True, True, False, 0.0, STUCK_S)) == "credentials refused"


def test_a_connection_lost_after_hours_has_not_been_without_attempt_for_hours() -> None:
    idle, client = TimeWithoutAttempt(), object()
    idle.look(0.0, client, 1, is_connected=True)
    assert idle.look(7200.0, client, 1, is_connected=False) == 0.0
    assert idle.look(7203.0, client, 1, is_connected=False) == 3.0
    assert idle.look(7204.0, client, 2, is_connected=False) == 0.0
    assert idle.look(7209.0, client, 2, is_connected=False) == 5.0


def test_the_time_of_a_new_client_starts_at_zero() -> None:
    idle, client, another = TimeWithoutAttempt(), object(), object()
    idle.look(0.0, client, 1, is_connected=False)
    assert idle.look(9.0, another, 1, is_connected=False) == 0.0
