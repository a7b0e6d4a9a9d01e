"""Ctrl-C while waiting, a program that ends without closing, and asyncio."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from leaderq.producing import Journal

_ENDS = """
import sys
from leaderq.producing import BufferedProducer, CallableSink

def away(batch):
    raise OSError("away")

producer = BufferedProducer(CallableSink(away), journal=sys.argv[1] or None)
for number in range(100):
    producer.send(number)
"""


@pytest.mark.parametrize("ending", ["", "raise SystemExit(0)", "raise KeyboardInterrupt"])
def test_a_program_that_ends_without_closing_leaves_what_is_pending_in_the_journal(
    tmp_path: Path, ending: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ENDS + ending, str(tmp_path)],
        check=False,
        timeout=60,
        capture_output=True,
    )
    assert done.returncode in (0, -signal.SIGINT)
    with Journal(tmp_path) as journal:
        assert journal.depth == 100


def test_a_program_that_ends_without_closing_or_a_journal_is_told_of_the_loss() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _ENDS, ""], check=False, timeout=60, capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "'closed before it was sent': 100" in done.stderr
