from __future__ import annotations

import threading
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest

from leaderq.testing import eventually
from leaderq.zookeeper.client import (
    STUCK_S,
    ClientSupervisor,
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
    reason = replacement_reason(
        has_ended=has_ended, is_refused=False, is_connected=is_connected, idle_s=idle_s
    )
    assert (reason is not None) is must_go


def test_a_client_that_ended_because_it_was_refused_is_replaced_for_that() -> None:
    reason = replacement_reason(has_ended=True, is_refused=True, is_connected=False, idle_s=0.0)
    assert reason == "credentials refused"


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


def test_a_client_that_keeps_ending_is_replaced_at_growing_intervals_however_often_woken() -> None:
    ended = threading.Event()
    ended.set()
    dead: Any = SimpleNamespace(
        ended=ended, auth_failed=False, connected=False, attempts=0, timeout_s=1.0
    )
    replaced: list[float] = []
    supervisor = ClientSupervisor("t", lambda: dead, lambda _: replaced.append(monotonic()))
    began = monotonic()
    supervisor.start()
    eventually(lambda: supervisor.wake() or len(replaced) > 3, interval_s=0.01)
    supervisor.stop()
    # half of each pause, which is what chance may leave
    assert replaced[3] - began >= 0.25 + 0.5 + 1.0
