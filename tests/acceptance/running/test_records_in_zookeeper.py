"""What stands in a career's ``control`` and ``term`` znodes: wishes that outlive a leader, and
text that is neither.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from leaderq.clock import now_s
from leaderq.election.layout import Layout
from leaderq.testing import eventually
from leaderq.testing.waiting import patience

TINY = "rude:TinyUnits"


def leading(candidate, **more):
    return candidate.wait_for("stage_began", stage="execution", **more)


@pytest.fixture
def operate(zookeeper_server, znode_root):
    """Run a verb as an operator does, to its end."""

    def run(*arguments: str) -> None:
        command = [
            sys.executable,
            "-m",
            "leaderq",
            *arguments,
            "--zookeeper",
            zookeeper_server.address,
            "--root",
            znode_root,
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 * patience())
        assert done.returncode == 0, done.stderr

    return run


def warnings_of(candidate, text: str) -> list[str]:
    lines = [line for line in candidate.lines if line.get("level") in ("warning", "error")]
    return [line["message"] for line in lines if text in line["message"]]


def test_a_new_leader_of_a_paused_career_executes_nothing_until_it_is_resumed(
    start,
    zookeeper_server,
    history,
    operate,
):
    candidates = [start(TINY, id=id_, zookeeper=zookeeper_server.address) for id_ in "abcd"]
    for candidate in candidates:
        candidate.wait_for("standing")
    leader = next_leader(candidates, 1)
    operate("pause", "--career", "rude")
    leader.wait_for("work_paused")
    for term in (2, 3, 4):
        leader.signal_worker(signal.SIGKILL)
        leader = next_leader(candidates, term)
    resumed_s = now_s()
    operate("resume", "--career", "rude")
    eventually(lambda: history.lines("begin", term=4))
    begun = [line for line in history.lines("begin") if line["term"] > 1]
    assert begun[0]["at"] > resumed_s


def next_leader(candidates, term: int):
    execution = {"stage": "execution", "term": term}
    (leader,) = eventually(lambda: [c for c in candidates if c.said("stage_began", **execution)])
    return leader


def test_spoilt_wishes_keep_nobody_from_leading_and_are_written_anew_by_the_next_wish(
    start, zookeeper, zookeeper_server, znode_root, operate
):
    control = Layout(znode_root, "rude").control
    zookeeper.ensure_path(control)
    zookeeper.set(control, b"spoilt")
    a = start(TINY, id="a", zookeeper=zookeeper_server.address)
    leading(a)
    for count in (1, 2):
        eventually(lambda: len(warnings_of(a, control)) == count)  # noqa: B023
        operate("pause", "--career", "rude")
        a.wait_for("work_paused", count=count)
        operate("resume", "--career", "rude")
        a.wait_for("work_resumed", count=count)
        assert len(warnings_of(a, control)) == count
        zookeeper.set(control, b"[spoilt under a leader]")
    assert not a.said("term_ending")


def test_a_spoilt_term_record_keeps_all_from_leading_until_an_operator_raises_the_floor(
    start, zookeeper, zookeeper_server, znode_root, history, operate
):
    term = Layout(znode_root, "rude").term
    zookeeper.ensure_path(term)
    zookeeper.set(term, b"spoilt")
    a = start(TINY, id="a", zookeeper=zookeeper_server.address)
    (message,) = eventually(lambda: warnings_of(a, term))
    assert "leaderq raise-floor" in message
    b = start(TINY, id="b", zookeeper=zookeeper_server.address)
    eventually(lambda: warnings_of(b, term))
    assert not history.lines("inaugurate")
    operate("raise-floor", "41", "--career", "rude")
    assert leading(a)["term"] >= 41
    assert len(warnings_of(a, term)) == 1
    a.terminate()
    assert leading(b)["term"] == a.said("term_began")[0]["term"] + 1
