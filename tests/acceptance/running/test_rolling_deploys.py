"""Rolling deploys of five real candidates that prefer the newest version.

``LEADERQ_TEST_DEPLOYS`` is their number; lives with crashes are in ``simulation/test_deploys.py``.
"""

from __future__ import annotations

import os
import random

import pytest

from leaderq.election import Observer
from leaderq.election.layout import TermRecord
from leaderq.testing import eventually

DEPLOYS = int(os.environ.get("LEADERQ_TEST_DEPLOYS", "2"))
NAMES = "abcde"


@pytest.mark.timeout(240 + 60 * DEPLOYS)
def test_a_rolling_deploy_costs_one_planned_change_or_two(start, zookeeper, znode_root):
    observer = Observer(zookeeper, "versioned", root=znode_root)

    def candidate(name: str, version: str):
        return start(
            "versioned:Versioned",
            id=name,
            environment={"VERSION": version},
            arguments=["--prefer", "newest"],
        )

    def leader() -> str | None:
        """Who leads, once all stand and nothing changes any more."""
        view = observer.view()
        is_settled = sorted(view.candidates) == [*NAMES] and view.stage == "execution"
        return view.leader if is_settled else None

    def newest() -> TermRecord:
        return observer.view().history[0]

    running = {name: candidate(name, "1.0") for name in NAMES}
    for number in range(DEPLOYS):
        first, began = eventually(leader), observer.view().term
        order = random.sample(NAMES, 5)
        if number % 2 == 0:
            order.sort(key=lambda name: name != first)
        for name in order:
            running[name].terminate()
            assert running[name].wait() == 0
            running[name] = candidate(name, f"1.{number + 1}")
            running[name].wait_for("standing")
            eventually(leader)

        eventually(lambda: leader() and newest().version == f"1.{number + 1}")  # noqa: B023
        changes = observer.view().term - began
        assert changes == (2 if order[0] == first else 1), (first, order, observer.view())
        ended = [one.reason for one in observer.view().history[1 : changes + 1]]
        assert set(ended) <= {"withdrawn", "superseded"}, ended
