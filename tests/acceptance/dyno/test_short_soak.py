"""A minute of ``make dyno-soak`` in ten seconds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_consumers_that_are_killed_and_frozen_lose_and_double_nothing() -> None:
    program = Path(__file__).with_name("soak.py")
    ran = subprocess.run(
        [sys.executable, program, "--messages", "1000"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "every promise was kept" in ran.stdout
