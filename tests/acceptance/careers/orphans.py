"""A career that leaves an orphan to process 1, and looks whether that was reaped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from recorder import Recorder

from leaderq import Term

FORK_TWICE = "import os, sys\nif os.fork() == 0:\n    os.setsid()\n    sys.exit(0)\n"


class Orphans(Recorder):
    name = "orphans"

    def inaugurate(self, term: Term) -> None:
        # The child's child outlives it by a moment, belongs to process 1 then, and dies.
        subprocess.run([sys.executable, "-c", FORK_TWICE], check=True)
        self.note("orphan left", term)

    def execute(self, term: Term) -> None:
        states = [
            stat.read_text().rpartition(")")[2].split()[0]
            for stat in Path("/proc").glob("[0-9]*/stat")
        ]
        if "Z" not in states:
            self.note("no zombies", term)
        term.wait(0.05)
