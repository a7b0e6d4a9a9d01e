"""Ctrl-C in programs whose producer spills (H1): ``LEADERQ_TEST_FAULTS`` of them, or ten."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).with_name("interrupted.py")
PROGRAMS = int(os.environ.get("LEADERQ_TEST_FAULTS", "0") or 0) or 10


def test_h1_programs_that_are_interrupted_as_they_send_lose_nothing(tmp_path):
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path), "1", str(PROGRAMS)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
