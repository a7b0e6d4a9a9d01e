"""The runner inside somebody's own program, on a real ZooKeeper. How terms end, and several careers
of a process: ``tests/simulation/test_runners.py``.
"""

from __future__ import annotations

import _thread
import signal
import threading

from leaderq import LeaderCareer, Runner, connect
from leaderq.base.exits import ExitCode
from leaderq.config import Settings
from leaderq.running.runner import handling
from leaderq.term import Reason
from leaderq.testing import eventually


class Counting(LeaderCareer):
    """Notes what is called, why its term ended, and on which threads."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.reasons: list[Reason | None] = []
        self.threads: set[int] = set()

    def prepare(self) -> None:
        self._note("prepare")

    def inaugurate(self, term) -> None:
        self._note("inaugurate")

    def execute(self, term) -> None:
        self._note("execute")
        term.wait(0.01)

    def handOver(self, term) -> None:  # noqa: N802
        self._note("handOver")
        self.reasons.append(term.reason)

    def retire(self) -> None:
        self._note("retire")

    def _note(self, what: str) -> None:
        if not self.calls or self.calls[-1] != what:
            self.calls.append(what)
        self.threads.add(threading.get_ident())


def test_a_career_lives_through_its_stages_on_one_thread(zookeeper_server, znode_root):
    career, codes = Counting(), list[int]()
    # of a time-out that is longer than anything here may be without a processor
    with connect(zookeeper_server.address, timeout_s=30) as session:
        runner = Runner(career, session, settings=Settings(root=znode_root, id="a"))
        running = threading.Thread(target=lambda: codes.append(runner.run()))
        running.start()
        eventually(lambda: "execute" in career.calls, timeout_s=30)
        runner.stop()
        running.join(60)
    assert codes == [ExitCode.OK]
    assert career.calls == ["prepare", "inaugurate", "execute", "handOver", "retire"]
    assert career.reasons == [Reason.WITHDRAWN]
    assert len(career.threads) == 1


def test_a_signal_that_comes_right_before_the_supervisor_waits_is_heard(session, znode_root):
    """Such a one is noted, but ends no wait: so does that of ``interrupt_main``."""
    career, has_heard, was_heard = Counting(), threading.Event(), list[bool]()
    runner = Runner(career, session, settings=Settings(root=znode_root, id="a"))
    stop, runner.stop = runner.stop, has_heard.set

    def strike():
        eventually(lambda: "execute" in career.calls, timeout_s=30)
        _thread.interrupt_main(signal.SIGTERM)
        was_heard.append(has_heard.wait(30))
        stop()

    striking = threading.Thread(target=strike)
    striking.start()
    with handling(runner):
        assert runner.run() == ExitCode.OK
    striking.join()
    assert was_heard == [True]
