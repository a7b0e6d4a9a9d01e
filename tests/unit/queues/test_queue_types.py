"""What users write passes a strict type checker, without annotations of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from snippets import ROOT

PROGRAM = """
from leaderq import connect
from leaderq.queues import JSON, TEXT, AsyncQueue, DistributedPriorityQueue, DistributedQueue

session = connect("127.0.0.1:2181")
with session, DistributedQueue(session, "/mail", serializer=TEXT) as queue:
    name: str | bool = queue.put("hello")
    with queue.take() as item:
        print(item.value.upper())
    for item in queue:
        with item:
            print(item.value.upper())
    maybe = queue.take(1.0)
    if maybe is not None:
        maybe.ack()
    raw = DistributedQueue(session, "/raw")
    raw.put(b"bytes")
    data: bytes = raw.take().value
    urgent = DistributedPriorityQueue(
        session, "/urgent", consumer=lambda value: print(value), serializer=JSON
    )


async def main() -> None:
    with connect("127.0.0.1:2181") as session:
        async with AsyncQueue(DistributedQueue(session, "/mail", serializer=TEXT)) as queue:
            async for item in queue:
                async with item:
                    print(item.value.upper())
"""
WRONG = """
from leaderq import connect
from leaderq.queues import TEXT, DistributedQueue

session = connect("127.0.0.1:2181")
with session, DistributedQueue(session, "/mail", serializer=TEXT) as queue:
    queue.put(3)
    queue.take(1.0).ack()
"""


def checked(program: str, tmp_path: Path) -> str:
    pytest.importorskip("mypy", reason="the types are checked where mypy is installed")
    file = tmp_path / "program.py"
    file.write_text(program)
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--follow-imports=silent",  # as for an installed package
        "--config-file",
        "",
        "--cache-dir",
        str(ROOT / ".mypy_cache" / "users"),
    ]
    return subprocess.run(
        [*command, str(file)], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout


def test_the_loops_of_the_readme_pass_mypy_strict(tmp_path: Path) -> None:
    assert "Success" in checked(PROGRAM, tmp_path)
    wrong = checked(WRONG, tmp_path)
    assert wrong.count("error: ") == 2
    assert "arg-type" in wrong
    assert "union-attr" in wrong
