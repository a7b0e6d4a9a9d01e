"""A career whose version is that of its deploy."""

from __future__ import annotations

import os

from leaderq import LeaderCareer, Term


class Versioned(LeaderCareer):
    name = "versioned"
    version = os.environ["VERSION"]

    def execute(self, term: Term) -> None:
        term.wait(0.02)
