"""The runner, and a ``with`` block that leads, inside somebody's own program, on a real ZooKeeper,
with their spans. How terms and bodies end, several careers of a process, tasks that lead:
``tests/simulation/test_runners.py``.
"""

from __future__ import annotations

import _thread
import signal
import threading
from contextlib import suppress

import pytest
from forks import in_child
from opentelemetry.trace import StatusCode
from traces import spans as spans

from leaderq import LeaderCareer, Runner
from leaderq.base.exits import ExitCode
from leaderq.config import Settings
from leaderq.election import Operator
from leaderq.events import Event, EventBus
from leaderq.running.runner import handling
from leaderq.testing import eventually


class Counting(LeaderCareer):
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.threads: set[int] = set()

    def prepare(self) -> None:
        self._note("prepare")

    def inaugurate(self, term) -> None:
        self._note("inaugurate")

    def execute(self, term) -> None:
        self._note("execute")
        term.wait(0.01)

    def handOver(self, term) -> None:  # noqa: N802
        self._note(f"handOver: {term.reason.value}")

    def retire(self) -> None:
        self._note("retire")

    def _note(self, what: str) -> None:
        if not self.calls or self.calls[-1] != what:
            self.calls.append(what)
        self.threads.add(threading.get_ident())


def test_a_career_lives_through_its_stages_on_one_thread(session):
    career, codes = Counting(), list[int]()
    runner = Runner(career, session, settings=Settings(id="a"))
    running = threading.Thread(target=lambda: codes.append(runner.run()))
    running.start()
    eventually(lambda: "execute" in career.calls)
    runner.stop()
    running.join(60)
    assert codes == [ExitCode.OK]
    assert career.calls == ["prepare", "inaugurate", "execute", "handOver: withdrawn", "retire"]
    assert len(career.threads) == 1


def test_a_signal_that_comes_right_before_the_supervisor_waits_is_heard(session, znode_root):
    """Such a one is noted, but ends no wait: so does that of ``interrupt_main``."""
    career, has_heard, was_heard = Counting(), threading.Event(), list[bool]()
    runner = Runner(career, session, settings=Settings(root=znode_root, id="a"))
    stop, runner.stop = runner.stop, has_heard.set

    def strike():
        eventually(lambda: "execute" in career.calls)
        _thread.interrupt_main(signal.SIGTERM)
        was_heard.append(has_heard.wait(30))
        stop()

    striking = threading.Thread(target=strike)
    striking.start()
    with handling(runner):
        assert runner.run() == ExitCode.OK
    striking.join()
    assert was_heard == [True]


def test_a_fork_that_leaves_the_body_releases_nothing(session, opened):
    block = session.leadership("c", id="a", timeout_s=60.0)

    def leave() -> None:
        with suppress(BaseException):
            block.__exit__(None, None, None)

    with block as term:
        in_child(leave)
        term.write([])
        view = Operator(opened(), "c").view()
        assert (view.leader, view.stage) == ("a", "execution")


def test_each_term_of_a_block_is_a_span_with_its_stage_also_on_a_shared_bus(session, spans):
    events = EventBus()
    block = session.leadership("c", id="a", events=events)
    for _ in range(2):
        with block, session.leadership("other", id="a", events=events):
            pass
    terms, stages = spans("term c"), spans("execution c")
    assert [one.attributes["leaderq.term"] for one in terms] == [1, 2]
    assert [one.parent.span_id for one in stages] == [one.context.span_id for one in terms]
    assert {one.attributes["leaderq.reason"] for one in terms} == {"withdrawn"}
    assert len(spans("term other")) == len(spans("execution other")) == 2
    assert {span.status.status_code for span in spans()} == {StatusCode.UNSET}
    kinds = [kind for kind, _ in events._listeners._listeners]
    assert kinds == [Event]  # the log; nobody else is left


def test_a_body_that_raises_marks_its_term(session, spans):
    with pytest.raises(ValueError, match="no such customer"), session.leadership("c"):
        raise ValueError("no such customer")
    (term,) = spans("term c")
    assert term.status.status_code is StatusCode.ERROR
    assert term.attributes["leaderq.reason"] == "failed"
