"""Java's LeaderLatch and our candidates in one election: who leads is judged by intervals on one
clock, never by what was meant.
"""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from java_peer import JavaClient, JavaLatch, JavaPeer

from leaderq import Candidate, Deposed, Session
from leaderq.clock import now_s
from leaderq.election.layout import Layout
from leaderq.term import Reason
from leaderq.testing import eventually
from leaderq.testing.candidate_process import CandidateProcess
from leaderq.testing.freezing import freeze

Reign = tuple[float, float, str]
CHANGES = 50
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


class Standing:
    """A candidate of ours on a thread of its own; it leads until it is asked to go, and counts as
    leading while its term passes ``check``.
    """

    def __init__(self, session: Session, layout: Layout, id: str) -> None:
        self.id = id
        self.session = session
        self.reigns: list[Reign] = []
        self._leads = threading.Event()
        self._asked = threading.Event()
        self._over = threading.Event()
        self._candidate = Candidate(session, layout.career, id=id, root=layout.root)
        self._thread = threading.Thread(target=self._run, name=id)
        self._thread.start()

    @property
    def leads(self) -> bool:
        return self._leads.is_set()

    def go(self) -> None:
        """Give the term back, and stand again at the end of the line."""
        self._asked.set()

    def close(self) -> None:
        """Stand no more."""
        self._over.set()
        self._asked.set()
        self._candidate.wake()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._candidate.close()

    def _run(self) -> None:
        while not self._over.is_set():
            self._candidate.stand()
            term = self._candidate.await_term(1.0)
            if term is None:
                continue
            self._asked.clear()
            began_s = last_s = time.monotonic()
            self._leads.set()
            try:
                while not (self._asked.is_set() or self._over.is_set() or term.ending.is_set()):
                    term.check()
                    last_s = time.monotonic()
                    self._asked.wait(0.002)
            except Deposed:
                pass
            self._leads.clear()
            self.reigns.append((began_s, last_s, self.id))
            self._candidate.conclude(term, Reason.STEP_DOWN)


class Javanese:
    """One LeaderLatch after the other."""

    id = "java"

    def __init__(self, java: JavaClient, layout: Layout) -> None:
        self._java = java
        self._layout = layout
        self._former: list[JavaLatch] = []
        self.latch = java.latch(layout.candidates, "java")

    @property
    def leads(self) -> bool:
        events = self.latch.events()
        return bool(events) and events[-1].kind == "isLeader"

    @property
    def reigns(self) -> list[Reign]:
        return [
            (since, until, "java")
            for latch in [*self._former, self.latch]
            for since, until in latch.reigns()
        ]

    def go(self) -> None:
        """Give the place back, and stand again at the end of the line."""
        self.latch.close()
        self._former.append(self.latch)
        self.latch = self._java.latch(self._layout.candidates, "java")


def _has_gone(leader: Standing | Javanese) -> bool:
    return not leader.leads


@pytest.fixture
def layout(znode_root: str) -> Layout:
    return Layout(znode_root, "c")


@pytest.fixture
def ours(opened: Any, layout: Layout) -> Iterator[list[Standing]]:
    """Two candidates of ours, each with its own session."""
    made = [Standing(opened(timeout_s=10.0), layout, f"ours-{number}") for number in (1, 2)]
    yield made
    for one in made:
        one.close()


def test_a_java_latch_and_our_candidates_change_fifty_times_and_never_lead_together(
    java: JavaClient, ours: list[Standing], layout: Layout
) -> None:
    theirs = Javanese(java, layout)
    changes = {"java": 0, "ours-1": 0, "ours-2": 0}
    for number in range(CHANGES):
        leader = eventually(
            lambda: next((one for one in (*ours, theirs) if one.leads), None), interval_s=0.002
        )
        changes[leader.id] += 1
        if isinstance(leader, Standing) and number % 10 == 9:
            leader.session.replace("the test wants it")  # its session is ended under it
        else:
            leader.go()
        eventually(partial(_has_gone, leader), interval_s=0.002)
    reigns = [reign for one in [*ours, theirs] for reign in one.reigns]
    assert len(reigns) >= CHANGES
    assert not overlaps(reigns)
    assert min(changes.values()) >= CHANGES // 10, f"each side has led: {changes}"
    theirs.latch.close()


class History:
    """What the recorder careers believed, as reigns on the clock that Java's are on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset_s = now_s() - time.monotonic()

    def reigns(self) -> list[Reign]:
        lines = [
            json.loads(line) for line in self.path.read_text().splitlines() if line.endswith("}")
        ]
        believed: dict[tuple[str, int], list[float]] = {}
        for line in lines:
            if line["what"] in ("inaugurate", "believed"):
                believed.setdefault((line["who"], line["term"]), []).append(
                    line["at"] - self._offset_s
                )
        return [(min(times), max(times), who) for (who, _), times in believed.items()]


@pytest.fixture
def run(
    zookeeper_server: Any, layout: Layout, tmp_path: Path
) -> Iterator[Callable[[str], CandidateProcess]]:
    """Starts ``leaderq run`` with a career that writes down what it believes."""
    started: list[CandidateProcess] = []

    def begin(id: str) -> CandidateProcess:
        started.append(
            CandidateProcess(
                "recorder:Recorder",
                id=id,
                zookeeper=zookeeper_server.address,
                cwd=CAREERS,
                session_timeout_s=6.0,
                arguments=["--root", layout.root, "--career", layout.career, "--cool-off-s", "0.2"],
                environment={"HISTORY": str(tmp_path / "history.jsonl")},
            ).start()
        )
        started[-1].wait_for("standing")
        return started[-1]

    yield begin
    for candidate in started:
        candidate.stop()


def test_leaders_are_killed_and_frozen_on_both_sides_and_never_lead_together(
    run: Callable[[str], CandidateProcess],
    mortal_peer: JavaPeer,
    zookeeper_server: Any,
    layout: Layout,
    tmp_path: Path,
) -> None:
    first = run("first")
    first.wait_for("stage_began", stage="execution")
    latch = mortal_peer.connect(zookeeper_server.address, timeout=6000).latch(
        layout.candidates, "java"
    )
    eventually(lambda: latch.participants == {"first", "java"})
    assert latch.leader == "first"
    second = run("second")

    first.signal_worker(signal.SIGKILL)
    eventually(lambda: latch.has_led, message="Java follows a killed leader of ours")
    mortal_peer.kill()
    killed_s = time.monotonic()
    second.wait_for("stage_began", stage="execution")

    third = run("third")
    freeze(second.worker_pid)
    third.wait_for("stage_began", stage="execution")
    second.signal_worker(signal.SIGCONT)
    second.wait_for("standing", count=2)

    javas = [(since, min(until, killed_s), "java") for since, until in latch.reigns()]
    reigns = [*History(tmp_path / "history.jsonl").reigns(), *javas]
    assert {who for _, _, who in reigns} == {"first", "java", "second", "third"}
    assert not overlaps(reigns)
