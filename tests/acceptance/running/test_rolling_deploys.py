"""Rolling deploys of real candidates that prefer the newest version."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from leaderq import Observer, connect
from leaderq.testing.candidate_process import CandidateProcess

CAREERS = Path(__file__).parents[1] / "careers"
DEPLOYS = int(os.environ.get("LEADERQ_TEST_DEPLOYS", "1"))
NAMES = "abcde"


class Fleet:
    """Five candidates, of which all stand and one executes whenever a method has returned."""

    def __init__(self, zookeeper: str, root: str) -> None:
        self._zookeeper, self._root = zookeeper, root
        self.session = connect(zookeeper)
        self.observer = Observer(self.session, "versioned", root=root)
        self.running: dict[str, CandidateProcess] = {}

    def start(self, name: str, version: str) -> None:
        self.running[name] = CandidateProcess(
            "versioned:Versioned",
            id=name,
            zookeeper=self._zookeeper,
            cwd=CAREERS,
            arguments=["--prefer", "newest", "--root", self._root],
            environment={"VERSION": version},
        ).start()
        self.observer.wait_until(
            lambda view: view.stage == "execution" and set(view.candidates) == set(self.running),
            timeout_s=90,
        )

    def restart(self, name: str, version: str) -> None:
        stopped = self.running.pop(name)
        stopped.terminate()
        stopped.wait()
        self.start(name, version)

    def close(self) -> None:
        for each in self.running.values():
            each.stop()
        self.session.close()


@pytest.fixture
def fleet(zookeeper_server, znode_root) -> Iterator[Fleet]:
    made = Fleet(zookeeper_server.address, znode_root)
    yield made
    made.close()


@pytest.mark.parametrize("seed", range(DEPLOYS))
def test_a_deploy_costs_one_change_of_leader_or_two_if_the_leader_is_the_first(fleet, seed):
    for name in NAMES:
        fleet.start(name, "1.9")
    before = fleet.observer.view()
    order = random.Random(seed).sample(NAMES, len(NAMES))
    for name in order:
        fleet.restart(name, "1.10")
    after = fleet.observer.view()
    changes = after.term - before.term
    assert changes == (2 if order[0] == before.leader else 1), order
    leader = next(one for one in after.members if one.candidate == after.leader)
    assert leader.version == "1.10"
