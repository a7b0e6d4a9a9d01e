"""``leaderq demo`` as its user runs it: to the end, and broken off."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import running_with

from leaderq.testing.waiting import patience

# not one of leaderq's own variables, so that the demo hands it on to all it starts
MARK = "LQ_TEST_MARK"
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def mark() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def scratch(tmp_path) -> Path:
    folder = tmp_path / "scratch"
    folder.mkdir()
    return folder


@pytest.fixture
def start(tmp_path, scratch, mark) -> Iterator[Start]:
    def begin(*arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "leaderq", "demo", *arguments],
            cwd=tmp_path,
            env={**os.environ, MARK: mark, "TMPDIR": str(scratch)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    yield begin
    for pid in running_with(mark):
        os.kill(pid, signal.SIGKILL)


def logs_in(scratch: Path) -> str:
    return "".join(
        f"\n--- {log.name}\n{log.read_text(errors='replace')}"
        for log in sorted(scratch.glob("*/?.log"))
    )


@pytest.mark.timeout(300)
def test_the_demo_runs_to_its_end_and_everything_holds(start, scratch, mark):
    process = start("--records", "3000")
    said, _ = process.communicate(timeout=150 * patience())
    assert process.returncode == 0, said + logs_in(scratch)
    assert (
        "VERDICT: all held: every record billed exactly once and in order, across 3 changes of"
        " leader" in said
    )
    assert re.search(r"^records fed +3,000$", said, re.MULTILINE)
    assert re.search(r"^records billed +3,000$", said, re.MULTILINE)
    assert re.search(r"^billed twice +0$", said, re.MULTILINE)
    assert re.search(r"^skipped +0$", said, re.MULTILINE)
    for kind in ("kill -9", "freeze", "transfer to"):
        assert re.search(rf"^{kind}.* ms +[\d,]+ ms$", said, re.MULTILINE), said
    assert re.search(
        r"noticed that it was deposed \(reason: (session|lease|fenced|node-deleted)\)", said
    )
    assert "\x1b" not in said
    assert running_with(mark) == []
    assert [path.name for path in scratch.glob("leaderq-d*")] == []


def test_an_interrupted_demo_leaves_nothing_running_and_nothing_behind(start, scratch, mark):
    process = start("--records", "3000")
    for line in process.stdout:
        if "leads term 1" in line:
            break
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)  # an impatient user must not disturb the clearing up
    said, _ = process.communicate(timeout=60 * patience())
    assert process.returncode == 130, said
    assert "Traceback" not in said
    assert running_with(mark) == []
    assert [path.name for path in scratch.glob("leaderq-d*")] == []
