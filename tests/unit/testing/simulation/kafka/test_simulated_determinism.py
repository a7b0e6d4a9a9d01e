"""The same calls have the same history, whatever the hash seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def history(hash_seed: int) -> str:
    path = os.pathsep.join([str(HERE), str(HERE.parents[4])])
    done = subprocess.run(
        [sys.executable, str(HERE / "kafka_life.py")],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return done.stdout


def test_two_processes_with_different_hash_seeds_have_the_same_history() -> None:
    first, second = history(1), history(2)
    assert first.count("\n") > 200
    assert first == second
