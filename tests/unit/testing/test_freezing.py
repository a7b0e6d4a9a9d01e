"""A frozen process stands still from the return of ``freeze`` on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from leaderq.testing.freezing import freeze

BUSY = """
import threading, zlib
def work():
    while True:
        zlib.crc32(bytes(200_000))
for _ in range(40):
    threading.Thread(target=work).start()
print("at work", flush=True)
"""


def states(pid: int) -> list[str]:
    return [
        (thread / "stat").read_text().rpartition(")")[2].split()[0]
        for thread in Path(f"/proc/{pid}/task").glob("*")
    ]


@pytest.mark.skipif(
    not Path("/proc/self/task").is_dir(), reason="the states of threads are read from /proc"
)
def test_no_thread_of_a_frozen_process_runs_any_more() -> None:
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as busy:
        try:
            assert busy.stdout is not None
            busy.stdout.readline()
            for _ in range(30):
                freeze(busy.pid)
                assert set(states(busy.pid)) == {"T"}
                os.kill(busy.pid, signal.SIGCONT)
        finally:
            busy.kill()


def test_a_process_that_is_gone_is_not_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    freeze(gone.pid)
