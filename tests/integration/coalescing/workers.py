"""The root of all keys in these tests, and processes that take part in the coalescing of a key, to
be killed and frozen. Such a process does what standard input says, a line at a time.

python workers.py ADDRESS ROOT NAME SESSION_TIMEOUT_S

======================  ======================================================================
``enqueue KEY``         answers with the outcome and the fencing number
``current``             answers ``True`` or ``False``
``write PATH TEXT``     writes with the fence; answers ``written``, or the error's class
``dequeue``             answers ``True`` or ``False``
======================  ======================================================================
"""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading

from leaderq.coalescing.automaton import EnqueueOutcome
from leaderq.coalescing.distributed import DistributedQueueCoordinator, DistributedToken
from leaderq.errors import LeaderqError
from leaderq.testing.waiting import patience
from leaderq.zookeeper import Session, SetData, connect

ROOT = "/coalescing"
# Who has a place, and finds that the one before has gone meanwhile, has not waited: ACCEPT.
HAD_A_PLACE = (EnqueueOutcome.BLOCK, EnqueueOutcome.ACCEPT)


class WorkerProcess:
    """As a test sees it."""

    def __init__(self, address: str, root: str, name: str, timeout_s: float) -> None:
        command = [sys.executable, __file__, address, root, name, str(timeout_s)]
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


class Worker:
    """In the process."""

    def __init__(self, session: Session, root: str, name: str) -> None:
        self._session = session
        self._coordinator = DistributedQueueCoordinator(session, root, timeout_s=60.0)
        self._root = root
        self._name = name
        self._token: DistributedToken | None = None

    def enqueue(self, key: str) -> str:
        self._token = self._coordinator.enqueue(key)
        return f"{self._token.outcome.name} {self._token.number}"

    def current(self) -> str:
        return str(self._token is not None and self._token.is_current)

    def write(self, path: str, text: str) -> str:
        assert self._token is not None
        try:
            self._token.write([SetData(path, text.encode())])
        except LeaderqError as exc:
            return type(exc).__name__
        return "written"

    def dequeue(self) -> str:
        assert self._token is not None
        return str(self._coordinator.dequeue(self._token))


def main(address: str, root: str, name: str, timeout_s: str) -> None:
    """Until the end of the input."""
    with connect(address, timeout_s=float(timeout_s)) as session:
        worker = Worker(session, root, name)
        print("ready", flush=True)
        for line in sys.stdin:
            verb, *words = line.split()
            print(getattr(worker, verb)(*words), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
