"""Bug 25 of the list of 28: the process stalls for longer than its session lasts, and works on.

The careers never look at their term. kazoo's own ``Election`` stands beside them as a control.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from marks import Marks

from leaderq.clock import now_s
from leaderq.testing import eventually
from leaderq.testing.candidate_process import CandidateProcess
from leaderq.testing.freezing import freeze

CAREERS = Path(__file__).parent / "careers"


@pytest.fixture
def kazoo_process(electorate, tmp_path) -> Iterator[subprocess.Popen]:
    """kazoo's ``Election`` in a process; it leads."""
    marks = tmp_path / "kazoo"
    command = [sys.executable, str(CAREERS / "kazoo_leader.py"), electorate.address]
    process = subprocess.Popen([*command, electorate.root + "/kazoo", str(marks), "3"])
    try:
        eventually(lambda: Marks(marks)[1].units)
        yield process
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def unheeding(electorate, tmp_path) -> Iterator[Callable[[str, float], CandidateProcess]]:
    """Start a candidate of the career ``Unheeding``."""
    with contextlib.ExitStack() as cleanup:

        def start(id: str, timeout_s: float) -> CandidateProcess:
            return cleanup.enter_context(
                CandidateProcess(
                    "unheeding:Unheeding",
                    id=id,
                    zookeeper=electorate.address,
                    cwd=CAREERS,
                    session_timeout_s=timeout_s,
                    arguments=["--root", electorate.root],
                    environment={"MARKS": str(tmp_path)},
                )
            )

        yield start


def late_terms(ours: Marks, successors: Marks) -> list[int]:
    """The terms in which something began after a later term was inaugurated."""
    return [
        number
        for number, mark in ours.terms().items()
        for later, successor in successors.terms().items()
        if later > number and max(mark.inaugurated_s, mark.last_s) > successor.inaugurated_s
    ]


def has_stopped(process: int) -> bool:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def test_bug_25_a_thawed_leader_begins_no_unit_after_its_successors_inauguration(
    electorate, unheeding, tmp_path, kazoo_process, kazoo_contender
):
    a = unheeding("a", 3)
    a.wait_for("stage_began", stage="execution")
    b = unheeding("b", 15)
    b.wait_for("standing")
    kazoo_successor = kazoo_contender("successor").stand()
    (tmp_path / "a.stop").touch()
    freeze(kazoo_process.pid)
    b.wait_for("stage_began", stage="execution")
    assert kazoo_successor.leads.wait(30)
    succeeded_s = now_s()
    a.signal_worker(signal.SIGCONT)
    kazoo_process.send_signal(signal.SIGCONT)
    eventually(lambda: a.said("term_ended") or not a.alive)
    assert late_terms(Marks(tmp_path / "a"), Marks(tmp_path / "b")) == []
    eventually(lambda: Marks(tmp_path / "kazoo")[1].last_s > succeeded_s + 1.0)  # it never ends


def test_bug_25_a_leader_thawed_before_its_inauguration_is_not_inaugurated(unheeding, tmp_path):
    (tmp_path / "a.stop-before").touch()
    a = unheeding("a", 3)
    eventually(lambda: has_stopped(a.worker_pid))
    (tmp_path / "a.stop-before").unlink()
    b = unheeding("b", 15)
    b.wait_for("stage_began", stage="execution")
    a.signal_worker(signal.SIGCONT)
    eventually(lambda: a.said("term_ended") or not a.alive)
    assert late_terms(Marks(tmp_path / "a"), Marks(tmp_path / "b")) == []
