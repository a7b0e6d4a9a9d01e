"""The root of all keys in these tests, and worker processes as the tests see them."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from pathlib import Path

from leaderq.coalescing.automaton import EnqueueOutcome
from leaderq.testing.waiting import patience

WORKER = Path(__file__).with_name("worker.py")
ROOT = "/coalescing"
# Who has a place, and finds that the one before has gone meanwhile, has not waited: ACCEPT.
HAD_A_PLACE = (EnqueueOutcome.BLOCK, EnqueueOutcome.ACCEPT)


class WorkerProcess:
    """See ``worker.py``."""

    def __init__(self, address: str, root: str, name: str, timeout_s: float) -> None:
        command = [sys.executable, str(WORKER), address, root, name, str(timeout_s)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self._answers: queue.Queue[str] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def says(self, timeout_s: float = 30.0) -> str:
        """What it says next."""
        return self._answers.get(timeout=timeout_s * patience())

    def tell(self, line: str) -> None:
        """Have it do something, without waiting for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def does(self, line: str, timeout_s: float = 30.0) -> str:
        """Have it do something; gives the answer."""
        self.tell(line)
        return self.says(timeout_s)

    def send(self, number: signal.Signals) -> None:
        """Kill, freeze, thaw."""
        self.process.send_signal(number)

    def end(self) -> None:
        """Whatever it is doing."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                stream.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        try:
            for line in self.process.stdout:
                self._answers.put(line.strip())
        except ValueError:  # closed by end()
            return
