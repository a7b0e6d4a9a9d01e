"""Ctrl-C while waiting, a program that ends without closing, and asyncio."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from scripted_sink import Make, ScriptedSink, is_away

from leaderq.producing import Block, Journal
from leaderq.testing import eventually


@pytest.mark.timeout(120, method="thread")  # the other method needs the alarm that is used here
def test_ctrl_c_while_waiting_for_room_takes_nothing(producer: Make, sink: ScriptedSink) -> None:
    sink.now(is_away)
    one = producer(max_items=1, when_full=Block(None))
    one.send("a")
    before = signal.signal(signal.SIGALRM, _interrupt)

    def interrupts() -> None:
        # it waits, and will until it is interrupted
        eventually(lambda: len(one._buffer.awaiting_room))
        os.kill(os.getpid(), signal.SIGALRM)

    killer = threading.Thread(target=interrupts)
    try:
        with pytest.raises(KeyboardInterrupt):
            killer.start()
            one.send("b")
        killer.join()
    finally:
        signal.signal(signal.SIGALRM, before)
    balance = one.snapshot().balance
    assert balance.is_exact
    assert balance.accepted == 1


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt


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
