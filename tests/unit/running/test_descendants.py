"""Finding and ending what a process has started."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

from leaderq.running import descendants
from leaderq.running.descendants import (
    Started,
    StartedInTerm,
    children_of,
    descendants_of,
    kill,
)
from leaderq.testing import eventually

SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
PARENT = [
    sys.executable,
    "-c",
    f"import subprocess, time; subprocess.Popen({SLEEPER!r}); time.sleep(600)",
]
WITHOUT_ITS_FIRST_THREAD = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""
SPARING = f"""
import os, subprocess, time
from leaderq.running.descendants import children_of, descendants_of, end_all
parent = subprocess.Popen({PARENT!r}, start_new_session=True)
while not descendants_of(parent.pid):
    time.sleep(0.01)
assert end_all(os.getpid(), within_s=60, but=parent.pid)
assert not descendants_of(parent.pid)
try:
    raise SystemExit(parent.wait(0.5))  # the time in which it would have died
except subprocess.TimeoutExpired:
    parent.kill()
"""
CUT_NAME = "начисление".encode()[:15]
"""As the system cuts the name of a program: within a letter."""
NAMED = f"import time; open('/proc/self/comm', 'wb').write({CUT_NAME!r}); time.sleep(600)"
NOT_OURS = """
import sys
from leaderq.running.descendants import StartedInTerm
started = StartedInTerm(guardian=int(sys.argv[1]))
started._since = 0
print(len(started.kill_left()))
"""


def pids(processes: set[Started]) -> set[int]:
    return {one.pid for one in processes}


def test_children_of_children_are_found_and_killed():
    with subprocess.Popen(PARENT) as parent:
        below = eventually(lambda: descendants_of(parent.pid))
        assert pids(below) == children_of(parent.pid)
        assert parent.pid in pids(descendants_of(os.getpid()))
        assert kill(below) == below
        eventually(lambda: not descendants_of(parent.pid))
        assert parent.poll() is None
        parent.kill()


def test_a_process_that_goes_while_it_is_looked_at_has_no_children():
    for _ in range(200):
        with subprocess.Popen(["sleep", "600"]) as process:
            reaper = threading.Thread(target=process.wait)
            reaper.start()
            process.kill()
            while Path(f"/proc/{process.pid}").exists():
                assert children_of(process.pid) == set()
            reaper.join()


def test_a_process_whose_first_thread_has_ended_is_not_dead():
    with subprocess.Popen([sys.executable, "-c", WITHOUT_ITS_FIRST_THREAD]) as process:
        stat = Path(f"/proc/{process.pid}/stat")
        eventually(lambda: stat.read_text().rpartition(")")[2].split()[0] == "Z")
        assert process.poll() is None
        found = {one for one in descendants_of(os.getpid()) if one.pid == process.pid}
        killed = kill(found)
        process.kill()
        assert pids(killed) == {process.pid}


def test_a_process_whose_name_is_cut_within_a_letter_is_found_like_any_other():
    with subprocess.Popen([sys.executable, "-c", NAMED]) as process:
        eventually(lambda: Path(f"/proc/{process.pid}/comm").read_bytes() == CUT_NAME + b"\n")
        try:
            found = {one for one in descendants_of(os.getpid()) if one.pid == process.pid}
            assert kill(found) == found != set()
            assert process.wait() == -9
        finally:
            process.kill()


def test_a_group_is_killed_whole_whoever_a_listing_has_missed(monkeypatch):
    with subprocess.Popen(PARENT, start_new_session=True) as parent:
        eventually(lambda: descendants_of(parent.pid))
        missed = descendants_of(parent.pid)
        listed = {one for one in descendants_of(os.getpid()) if one.pid == parent.pid}
        monkeypatch.setattr(descendants, "_below", lambda root: [(one.pid, one) for one in listed])
        assert descendants.kill_below(os.getpid()) == listed
        monkeypatch.undo()
        eventually(lambda: not descendants.send(missed, 0))


def test_who_is_spared_lives_on_and_what_it_has_started_does_not():
    with subprocess.Popen([sys.executable, "-c", SPARING]) as root:
        assert root.wait() == 0


def test_a_number_that_another_process_bears_by_now_is_left_alone():
    with subprocess.Popen(SLEEPER) as other:
        known = eventually(
            lambda: {one for one in descendants_of(os.getpid()) if one.pid == other.pid}
        )
        former = {one._replace(began=one.began - 1) for one in known}
        assert kill(former) == set()
        assert other.poll() is None
        other.kill()


def test_only_what_was_started_in_the_term_is_ended():
    with subprocess.Popen(SLEEPER) as before:
        began = next(one.began for one in descendants_of(os.getpid()) if one.pid == before.pid)
        eventually(lambda: StartedInTerm(guardian=0)._since > began)
        started = StartedInTerm(guardian=0)
        with subprocess.Popen(PARENT) as within:
            below = eventually(lambda: descendants_of(within.pid))
            assert pids(started.kill_left()) == {within.pid} | pids(below)
            assert within.wait() == -9
        assert before.poll() is None
        assert started.kill_left() == set()
        before.kill()


def test_the_helpers_of_multiprocessing_live_on():
    started = StartedInTerm(guardian=0)
    context = multiprocessing.get_context("spawn")
    lock = context.Lock()  # starts the resource tracker
    tracker = multiprocessing.resource_tracker._resource_tracker._pid
    assert tracker in children_of(os.getpid())
    assert tracker not in pids(started.kill_left())
    assert tracker in pids(descendants_of(os.getpid()))
    del lock


def test_a_guardian_that_is_not_our_parent_any_more_is_not_searched():
    with subprocess.Popen(PARENT, start_new_session=True) as stranger:
        below = eventually(lambda: descendants_of(stranger.pid))
        inner = [sys.executable, "-c", NOT_OURS, str(stranger.pid)]
        found = subprocess.run(inner, check=True, capture_output=True, text=True).stdout
        kill(below)
        stranger.kill()
    assert found == "0\n"
