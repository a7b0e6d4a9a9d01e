"""What a worker has started, and its guardian had adopted, is known when the guardian is killed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

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
        assert guardian.stdout is not None
        daemon = int(guardian.stdout.readline())
        guardian.stdout.readline()
        stat = Path(f"/proc/{daemon}/stat")
        os.kill(guardian.pid, 9)
        assert guardian.stdout.readline() == ("2\n" if in_term else "True\n")
    eventually(lambda: not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX")
