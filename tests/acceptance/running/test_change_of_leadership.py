"""Real processes, killed, frozen and cut off: who leads, who believes to lead, and who is told why
not.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess

import pytest

from leaderq.running.descendants import children_of
from leaderq.testing import eventually
from leaderq.testing.freezing import freeze

RECORDER = "recorder:Recorder"
AS_PROCESS_ONE = ["unshare", "-U", "-r", "-p", "-f", "--kill-child", "--mount-proc"]


def leading(candidate, **more):
    return candidate.wait_for("stage_began", stage="execution", **more)


def standing(start, *ids, target=RECORDER, **options):
    """Candidates in the order of their places; the first one leads."""
    candidates = []
    for id_ in ids:
        candidates.append(start(target, id=id_, **options))
        candidates[-1].wait_for("standing")
    leading(candidates[0])
    return candidates


def test_a_killed_workers_session_is_closed_by_its_guardian_and_the_next_leads(start, history):
    a, b = standing(start, "a", "b", session_timeout_s=60)
    a.signal_worker(signal.SIGKILL)
    leading(b, timeout_s=30)  # half the session time-out: without the guardian it could not
    assert a.wait() == 1
    assert a.said("session_ended", closed=True)
    assert a.said("worker_died")
    assert history.overlap_s() < 0
    assert history.lines("inaugurate", who="b")[0]["unclean"] is True


def test_a_frozen_leader_is_refused_everything_when_it_thaws_and_hands_over_with_the_reason(
    start, history, zookeeper
):
    zookeeper.ensure_path("/zombie")
    a, b = standing(start, "a", "b", session_timeout_s=6)
    frozen = a.worker_pid
    freeze(frozen)
    leading(b)
    os.kill(frozen, signal.SIGCONT)
    eventually(lambda: a.said("standing")[1:] or not a.alive)  # it goes back into the line
    assert history.overlap_s() < 0
    assert not history.lines("write passed")
    if not a.alive:
        pytest.skip("the machine was too busy: a unit that runs 0.08 s after a thaw is killed")
    assert a.said("term_ended", reason="lease", clean=False)
    handed_over = history.lines("handOver", who="a")
    assert [line["reason"] for line in handed_over] == ["lease"]
    assert handed_over[0]["pid"] == frozen  # it lived to be told


def test_a_terminated_leader_finishes_its_unit_hands_over_and_only_then_the_next_starts(
    start, history
):
    a, b = standing(start, "a", "b", target="recorder:Slow")
    eventually(lambda: history.lines("unit began", who="a"))
    a.terminate()
    leading(b)
    assert a.wait() == 0
    order = [
        line["what"]
        for line in history.lines()
        if line["who"] == "a" or line["what"] == "inaugurate"
    ]
    assert order[-3:] == ["unit done", "handOver", "inaugurate"]


def test_without_a_guardian_the_session_times_out_and_the_next_leads(start, history):
    a, b = standing(start, "a", "b", session_timeout_s=6, arguments=["--no-guardian"])
    assert a.worker_pid == a.pid
    a.process.kill()
    leading(b)
    assert history.overlap_s() < 0


def test_a_restart_within_the_lease_pauses_the_work_and_keeps_the_term(
    start, zookeeper_server, history
):
    a = start(RECORDER, id="a", session_timeout_s=60)
    leading(a)
    zookeeper_server.kill()
    a.wait_for("work_paused")
    zookeeper_server.start()
    a.wait_for("work_resumed")
    believed = len(history.lines("believed", term=1))
    eventually(lambda: len(history.lines("believed", term=1)) > believed)
    assert not a.said("term_ending")


def test_a_failing_career_hands_over_cools_off_and_stands_again(start, history):
    a = start("recorder:Failing", id="a", arguments=["--max-failures", "2", "--yield-s", "1"])
    a.wait_for("cooling_off", failures=2)
    failure = a.said("career_error", stage="execution")[0]
    assert "no ink in the pen" in failure["message"] + failure.get("traceback", "")
    assert {line["reason"] for line in history.lines("handOver")} == {"failed"}
    a.wait_for("term_began", count=3)


def test_a_guardian_as_process_one_passes_signals_on_and_reaps_orphans(start, history):
    if (
        shutil.which("unshare") is None
        or subprocess.run([*AS_PROCESS_ONE, "true"], capture_output=True).returncode
    ):
        pytest.skip("this system lets nobody make a process namespace (unshare --pid)")
    a = start("orphans:Orphans", id="a", under=AS_PROCESS_ONE)
    leading(a)
    eventually(lambda: history.lines("orphan left"))
    eventually(lambda: history.lines("no zombies"))
    (guardian,) = children_of(a.pid)
    os.kill(guardian, signal.SIGTERM)
    assert a.wait() == 0
    assert history.lines("handOver", reason="withdrawn")
