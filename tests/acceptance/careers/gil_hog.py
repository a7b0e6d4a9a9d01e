"""A career whose unit of work holds the GIL in C for a long time: none of the process's Python
threads can run meanwhile.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from recorder import Recorder

from leaderq import Term


class GilHog(Recorder):
    """Once told to go, matches a pattern that takes minutes."""

    name = "gil-hog"

    def execute(self, term: Term) -> None:
        if not (Path(os.environ["HISTORY"]).parent / "go").exists():
            term.wait(0.01)
            return
        re.match(r"(a+)+$", "a" * 40 + "b")
        self.note("survived", term)
