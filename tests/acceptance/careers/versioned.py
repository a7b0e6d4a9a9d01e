"""A career whose version its environment says, as an image's tag would."""

from __future__ import annotations

import os

from leaderq import LeaderCareer, Term


class Versioned(LeaderCareer):
    name = "versioned"
    version = os.environ["VERSION"]

    def execute(self, term: Term) -> None:
        term.wait(60)
