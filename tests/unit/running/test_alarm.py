"""A guardian is woken when it is due, on the clock that counts while the host is suspended."""

from __future__ import annotations

import os
import select
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leaderq import clock
from leaderq.running.alarm import Alarm
from leaderq.running.guardian import Guardian
from leaderq.running.watchdog import Watchdog


@pytest.fixture
def alarm():
    made = Alarm()
    yield made
    made.close()
    made.close()


def rings(alarm: Alarm, within_ms: int) -> bool:
    poll = select.poll()
    poll.register(alarm.fileno, select.POLLIN)
    return bool(poll.poll(within_ms))


def told(alarm: Alarm) -> str:
    return Path(f"/proc/self/fdinfo/{alarm.fileno}").read_text()


def test_it_rings_from_its_time_on_until_it_is_set_to_another(alarm):
    assert not rings(alarm, 0)
    set_s = clock.now_s()
    alarm.set(set_s + 0.05)
    assert rings(alarm, 60_000)
    assert clock.now_s() >= set_s + 0.05
    assert rings(alarm, 0)
    alarm.set(None)
    assert not rings(alarm, 50)
    alarm.set(clock.now_s() - 5.0)  # it is late already
    assert rings(alarm, 60_000)
    alarm.set(clock.now_s() + 600.0)
    assert not rings(alarm, 50)


def test_its_clock_counts_while_the_host_is_suspended(alarm):
    alarm.set(clock.now_s() + 600.0)
    assert f"clockid: {time.CLOCK_BOOTTIME}\n" in told(alarm)
    assert "it_value: (59" in told(alarm)


def test_a_guardian_whose_selector_sleeps_on_is_woken_when_it_is_due(monkeypatch):
    """As after a suspension: for the selector hardly any time has passed."""
    guardian: Any = Guardian()
    looks: list[float] = []
    due_s = clock.now_s() + 0.05

    def look(_worker: object) -> None:
        looks.append(clock.now_s())
        guardian._watchdog = Watchdog(due_s=due_s if len(looks) == 1 else None)
        guardian._exit_status = 0 if len(looks) == 2 else None

    real_now_s = clock.now_s
    guardian._link, wake = os.pipe()[0], os.pipe()[0]
    monkeypatch.setattr(guardian, "_look", look)
    monkeypatch.setattr(guardian, "_reap", lambda _worker: None)
    guardian._watchdog = Watchdog(due_s=real_now_s())
    monkeypatch.setattr(clock, "now_s", lambda: real_now_s() - 3600.0)  # the selector's waits
    guardian._stay(SimpleNamespace(pid=0), wake)
    assert len(looks) == 2
    for number in (guardian._link, wake):
        os.close(number)
