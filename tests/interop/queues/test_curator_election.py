"""Java's LeaderLatch and our candidates in one election: who leads is judged by intervals on one
clock, never by what was meant.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from recorded import History

from leaderq.base.clock import now_s
from leaderq.election.layout import Layout
from leaderq.testing import eventually
from leaderq.testing.candidate_process import CandidateProcess
from leaderq.testing.freezing import freeze

Reign = tuple[float, float, str]
CAREERS = Path(__file__).parents[2] / "acceptance" / "careers"


def overlaps(reigns: list[Reign]) -> list[tuple[Reign, Reign]]:
    """Pairs of reigns of different leaders that share an instant."""
    ordered = sorted(reigns)
    return [
        (one, other)
        for position, one in enumerate(ordered)
        for other in ordered[position + 1 :]
        if other[0] <= one[1] and other[2] != one[2]
    ]


@pytest.fixture
def layout(znode_root) -> Layout:
    return Layout(znode_root, "c")


def reigns_in(path: Path) -> list[Reign]:
    """What the recorder careers believed, as reigns on the clock that Java's are on."""
    offset_s = now_s() - time.monotonic()
    believed: dict[tuple[str, int], list[float]] = {}
    for line in History(path).lines():
        if line["what"] in ("inaugurate", "believed"):
            believed.setdefault((line["who"], line["term"]), []).append(line["at"] - offset_s)
    return [(min(times), max(times), who) for (who, _), times in believed.items()]


@pytest.fixture
def run(start, layout, tmp_path) -> Callable[[str], CandidateProcess]:
    """Starts ``leaderq run`` with a career that writes down what it believes."""

    def begin(id: str) -> CandidateProcess:
        candidate: CandidateProcess = start(
            "recorder:Recorder",
            id=id,
            cwd=CAREERS,
            session_timeout_s=6.0,
            arguments=["--career", layout.career, "--cool-off-s", "0.2"],
            environment={"HISTORY": str(tmp_path / "history.jsonl")},
        )
        candidate.wait_for("standing")
        return candidate

    return begin


def test_java_and_ours_follow_each_other_as_planned_killed_and_frozen_and_never_lead_together(
    run, mortal_peer, zookeeper_server, layout, tmp_path
):
    first = run("first")
    first.wait_for("stage_began", stage="execution")
    java = mortal_peer.connect(zookeeper_server.address, timeout=6000)
    planned = java.latch(layout.candidates, "java")
    eventually(lambda: planned.participants == {"first", "java"})
    assert planned.leader == "first"
    second = run("second")

    first.terminate()
    eventually(lambda: planned.has_led, message="Java follows a leader of ours that steps down")
    latch = java.latch(layout.candidates, "java")
    planned.close()
    second.wait_for("stage_began", stage="execution")

    third = run("third")
    second.signal_worker(signal.SIGKILL)
    eventually(lambda: latch.has_led, message="Java follows a killed leader of ours")
    mortal_peer.kill()
    killed_s = time.monotonic()
    third.wait_for("stage_began", stage="execution")

    fourth = run("fourth")
    freeze(third.worker_pid)
    fourth.wait_for("stage_began", stage="execution")
    third.signal_worker(signal.SIGCONT)
    third.wait_for("standing", count=2)

    javas = [(*one.reign(killed_s), "java") for one in (planned, latch)]
    reigns = [*reigns_in(tmp_path / "history.jsonl"), *javas]
    assert {who for _, _, who in reigns} == {"first", "java", "second", "third", "fourth"}
    assert not overlaps(reigns)
