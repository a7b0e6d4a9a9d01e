from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from leaderq.base import clock
from leaderq.running.alarm import Alarm
from leaderq.running.guardian import Guardian
from leaderq.running.watchdog import Watchdog
from leaderq.testing import eventually

GUARDIAN = """
import os, subprocess, sys
from leaderq.running.descendants import MARK, adopt_orphans
adopt_orphans()
subprocess.Popen([sys.executable, "-c", sys.argv[1]], env={**os.environ, MARK: "mine"})
while True:
    os.wait()
"""
WORKER = """
import os, subprocess, sys, time
from leaderq.running import descendants
from leaderq.running.descendants import Orphans, StartedInTerm, children_of, end_started
guardian = os.getppid()
descendants._watched = orphans = Orphans(guardian, os.environ[descendants.MARK])
started = StartedInTerm(guardian)
TWICE = "import os, time\\nif os.fork(): os._exit(0)\\nos.setsid()\\nif os.fork(): os._exit(0)\\n"
SAY = "while os.getppid() == os.getsid(0): pass\\nprint(os.getpid(), flush=True)\\ntime.sleep(600)"
def daemon(environment):
    command = [sys.executable, "-c", TWICE + SAY]
    started = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    started.wait()
    return int(started.stdout.readline())
print(daemon({environment}), flush=True)
if {noted}:
    assert orphans.note() > 0
assert orphans.left() == set()  # the guardian sees to them
try:
    os.waitpid(-1, os.WNOHANG)  # as a career does that knows all its children
    raise SystemExit("a stranger among the children")
except ChildProcessError:
    pass
print(flush=True)
while os.getppid() == guardian:
    time.sleep(0.01)
assert orphans.note() is None
assert daemon({{}}) in children_of(os.getpid())
print(len(started.kill_left()) if {in_term} else end_started(within_s=60), flush=True)
"""


@pytest.mark.parametrize(
    ("environment", "noted"),
    [("None", True), ("None", False), ("{}", True)],
    ids=["marked and seen", "marked", "seen"],
)
@pytest.mark.parametrize("in_term", [True, False], ids=["in a term", "at the end"])
def test_the_daemon_of_a_worker_whose_guardian_was_killed_is_ended(environment, noted, in_term):
    worker = WORKER.format(environment=environment, noted=noted, in_term=in_term)
    command = [sys.executable, "-c", GUARDIAN, worker]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as guardian:
        daemon = int(guardian.stdout.readline())
        guardian.stdout.readline()
        stat = Path(f"/proc/{daemon}/stat")
        os.kill(guardian.pid, 9)
        assert guardian.stdout.readline() == ("2\n" if in_term else "True\n")
    eventually(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX")


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


def test_it_rings_from_its_time_on_until_it_is_set_to_another(alarm):
    assert not rings(alarm, 0)
    set_s = clock.now_s()
    alarm.set(set_s + 0.05)
    assert rings(alarm, 60_000)
    assert clock.now_s() >= set_s + 0.05
    alarm.set(None)
    assert not rings(alarm, 50)
    alarm.set(clock.now_s() - 5.0)  # it is late already
    assert rings(alarm, 60_000)
    alarm.set(clock.now_s() + 600.0)
    assert not rings(alarm, 50)
    told = Path(f"/proc/self/fdinfo/{alarm.fileno}").read_text()
    assert f"clockid: {time.CLOCK_BOOTTIME}\n" in told, "it stands while the host is suspended"


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
