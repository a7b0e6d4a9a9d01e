"""A career whose units outlive any lease and never ask whether their term still is."""

from __future__ import annotations

import time

from leaderq import LeaderCareer, Term
from leaderq.testing.nemesis import effect


class Stubborn(LeaderCareer):
    """Has an effect every 5 ms."""

    def execute(self, term: Term) -> None:
        while True:
            effect(term)
            time.sleep(0.005)
