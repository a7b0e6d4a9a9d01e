"""The guardian as its user's shell, terminal and supervisor treat it."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from leaderq.base.clock import now_s
from leaderq.testing import eventually
from leaderq.testing.freezing import freeze
from leaderq.testing.waiting import patience

TINY = "rude:TinyUnits"


def leading(candidate, **more):
    return candidate.wait_for("stage_began", stage="execution", **more)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def works_on(history, what: str = "begin", **who) -> None:
    """Whoever works has not been disturbed by what was done just now."""
    before = len(history.lines(what, **who))
    eventually(lambda: len(history.lines(what, **who)) > before + 200, interval_s=0.2)


@pytest.mark.parametrize("raised", ["error", "exit"])
def test_what_the_users_module_raises_is_said_once_and_is_bad_usage(start, raised):
    a = start(TINY, id="a", environment={"RUDE_IMPORT": raised})
    assert a.wait() == 2
    assert sum("no such table" in line["message"] for line in a.lines) == 1


def test_a_hang_up_is_a_request_to_stop(start, history):
    # Whoever runs the tests may ignore SIGHUP, and what they start would, too.
    under = ["env", "--default-signal=HUP"]
    a = start(TINY, id="a", under=under)
    leading(a)
    b = start(TINY, id="b")
    b.wait_for("standing")
    os.kill(a.pid, signal.SIGHUP)
    assert a.wait() == 0
    assert history.lines("handOver", reason="withdrawn")
    leading(b)
    assert history.lines("inaugurate", term=2)[0]["unclean"] is False


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
        fill(writing)
        proxy.black_hole()
        leading(b)
        (inaugurated,) = history.lines("inaugurate", term=2)
        works_on(history, term=2)
        late = [each for each in history.lines("effect", term=1) if each["at"] > inaugurated["at"]]
        assert len(late) == 0
        proxy.heal()  # the guardian is about to close the session
        assert a.wait() == 1
    finally:
        os.close(reading)
        os.close(writing)


def fill(pipe: int) -> None:
    for size in (4096, 1):
        with suppress(BlockingIOError):
            while True:
                os.write(pipe, b"\n" * size)


def test_a_session_that_its_worker_could_not_close_is_closed_by_the_guardian(
    start, zookeeper_server, fault_proxy
):
    proxy = fault_proxy(zookeeper_server.address)
    a = start(TINY, id="a", zookeeper=proxy.address, session_timeout_s=60)
    leading(a)
    b = start(TINY, id="b", session_timeout_s=60)
    b.wait_for("standing")
    worker = a.worker_pid
    proxy.black_hole()
    a.terminate()
    eventually(lambda: is_gone(worker))
    proxy.heal()
    leading(b, timeout_s=15)  # a quarter of the session time-out
    assert a.wait() == 0


def test_worker_and_guardian_killed_together_cost_no_more_than_a_session_time_out(start):
    a = start(TINY, id="a", session_timeout_s=4)
    leading(a)
    b = start(TINY, id="b", session_timeout_s=4)
    b.wait_for("standing")
    worker = a.worker_pid
    freeze(a.pid)  # so that neither outlives the other, as where a whole container is killed
    for pid in (worker, a.pid):
        os.kill(pid, signal.SIGKILL)
    killed_s = now_s()
    leading(b)
    assert 4 / 2 < now_s() - killed_s < 1.1 * 4 + 2 * patience()


@pytest.mark.skipif(os.getuid() != 0, reason="only root may become somebody else")
def test_a_worker_that_its_guardian_may_not_signal_is_asked_to_leave_in_another_way(start, history):
    powerless = ["setpriv", "--bounding-set=-kill", "--inh-caps=-kill"]
    a = start("rude:Unprivileged", id="a", under=powerless)
    leading(a)
    a.terminate()
    assert a.wait() == 0
    assert history.lines("handOver", reason="unguarded")
    assert a.said("worker_not_signalled")
