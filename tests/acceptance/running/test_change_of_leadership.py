"""Real processes, killed, frozen and cut off: who leads, who believes to lead, and who is told why
not. And the guardian as its user's shell, terminal and supervisor treat it.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from leaderq.base.clock import now_s
from leaderq.running.descendants import stat_of
from leaderq.testing import eventually
from leaderq.testing.freezing import freeze
from leaderq.testing.waiting import patience

RECORDER = "recorder:Recorder"


def leading(candidate, **more):
    return candidate.wait_for("stage_began", stage="execution", **more)


@pytest.fixture
def standing(start):
    def begin(*ids, target=RECORDER, **options):
        candidates = []
        for id_ in ids:
            candidates.append(start(target, id=id_, **options))
            candidates[-1].wait_for("standing")
        leading(candidates[0])
        return candidates

    return begin


def test_a_killed_workers_session_is_closed_by_its_guardian_and_the_next_leads(standing, history):
    a, b = standing("a", "b", session_timeout_s=60)
    a.signal_worker(signal.SIGKILL)
    leading(b, timeout_s=30)  # half the session time-out: without the guardian it could not
    assert a.wait() == 1
    assert a.said("session_ended", closed=True)
    assert a.said("worker_died")
    assert history.overlap_s() < 0
    assert history.lines("inaugurate", who="b")[0]["unclean"] is True


def test_a_frozen_leader_is_refused_everything_when_it_thaws_and_hands_over_with_the_reason(
    standing, history, zookeeper
):
    zookeeper.ensure_path("/zombie")
    a, b = standing("a", "b", session_timeout_s=6)
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
    standing, history
):
    a, b = standing("a", "b", target="recorder:Slow")
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


TINY = "rude:TinyUnits"


def test_a_hang_up_is_a_request_to_stop(standing, history):
    # Whoever runs the tests may ignore SIGHUP, and what they start would, too.
    a, b = standing("a", "b", target=TINY, under=["env", "--default-signal=HUP"])
    os.kill(a.pid, signal.SIGHUP)
    assert a.wait() == 0
    assert history.lines("handOver", reason="withdrawn")
    leading(b)
    assert history.lines("inaugurate", term=2)[0]["unclean"] is False


@pytest.mark.parametrize("target", ["NeverPrepared", "NeverRetires", "LeavesAPool"])
def test_what_does_not_end_outside_of_terms_holds_no_process_up_that_was_told_to_stop(
    start, history, target
):
    a = start(f"rude:{target}", id="a", arguments=["--handover-budget-s", "0.5"])
    eventually(lambda: history.lines("prepare" if target == "NeverPrepared" else "begin"))
    a.terminate()
    assert a.wait(timeout_s=30) == 4
    # What holds it up is named: the method, or the thread.
    (said,) = [line["message"] for line in a.lines if line["level"] == "error"]
    where = {"NeverPrepared": "> prepare (rude.py", "NeverRetires": "> retire (rude.py"}
    assert where.get(target, "ThreadPoolExecutor-0_0") in said


def test_a_log_that_nobody_reads_keeps_no_guardian_from_ending_its_worker(
    start, zookeeper_server, fault_proxy, history, tmp_path
):
    log = tmp_path / "log"
    os.mkfifo(log)
    reading = os.open(log, os.O_RDONLY | os.O_NONBLOCK)
    writing = os.open(log, os.O_WRONLY | os.O_NONBLOCK)
    proxy = fault_proxy(zookeeper_server.address)
    under = ["sh", "-c", 'exec "$@" 2>"$0"', str(log)]
    try:
        options = {"session_timeout_s": 4, "under": under}
        a = start("rude:LongUnits", id="a", zookeeper=proxy.address, **options)
        eventually(lambda: history.lines("begin"))
        b = start(TINY, id="b", session_timeout_s=4)
        b.wait_for("standing")
        for size in (4096, 1):
            with suppress(BlockingIOError):
                while True:
                    os.write(writing, b"\n" * size)
        proxy.black_hole()
        leading(b)
        (inaugurated,) = history.lines("inaugurate", term=2)
        proxy.heal()  # the guardian is about to close the session
        assert a.wait() == 1
        assert all(each["at"] < inaugurated["at"] for each in history.lines("effect", term=1))
    finally:
        os.close(reading)
        os.close(writing)


def test_a_session_that_its_worker_could_not_close_is_closed_by_the_guardian(
    start, standing, zookeeper_server, fault_proxy
):
    proxy = fault_proxy(zookeeper_server.address)
    (a,) = standing("a", zookeeper=proxy.address, session_timeout_s=60)
    b = start(RECORDER, id="b", session_timeout_s=60)
    b.wait_for("standing")
    worker = a.worker_pid
    proxy.black_hole()
    a.terminate()
    eventually(lambda: stat_of(worker)[:1] in ([], ["Z"], ["X"]))
    proxy.heal()
    leading(b, timeout_s=15)  # a quarter of the session time-out
    assert a.wait() == 0


@pytest.mark.parametrize("more", [[], ["--no-guardian"]], ids=["with its guardian", "without one"])
def test_a_worker_that_dies_with_its_guardian_costs_no_more_than_a_session_time_out(
    standing, history, more
):
    a, b = standing("a", "b", session_timeout_s=4, arguments=more)
    worker = a.worker_pid
    assert (worker == a.pid) is bool(more)
    freeze(a.pid)  # so that neither outlives the other, as where a whole container is killed
    for pid in dict.fromkeys((worker, a.pid)):  # the frozen one last: the other would hand over
        os.kill(pid, signal.SIGKILL)
    killed_s = now_s()
    leading(b)
    assert 4 / 2 < now_s() - killed_s < 1.1 * 4 + 2 * patience()
    assert history.overlap_s() < 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
def test_a_worker_that_its_guardian_may_not_signal_is_asked_to_leave_in_another_way(start, history):
    powerless = ["setpriv", "--bounding-set=-kill", "--inh-caps=-kill"]
    a = start("rude:Unprivileged", id="a", under=powerless)
    leading(a)
    a.terminate()
    assert a.wait() == 0
    assert history.lines("handOver", reason="unguarded")
    assert a.said("worker_not_signalled")
