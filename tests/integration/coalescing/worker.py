"""A process that takes part in the coalescing of a key, to be killed and frozen. It does what
standard input says, a line at a time.

python worker.py ADDRESS ROOT NAME SESSION_TIMEOUT_S

======================  ======================================================================
``enqueue KEY``         answers with the outcome and the fencing number
``current``             answers ``True`` or ``False``
``write PATH TEXT``     writes with the fence; answers ``written``, or the error's class
``dequeue``             answers ``True`` or ``False``
======================  ======================================================================
"""

from __future__ import annotations

import sys

from leaderq.coalescing.distributed import DistributedQueueCoordinator, DistributedToken
from leaderq.errors import LeaderqError
from leaderq.zookeeper import Session, SetData, connect


class Worker:
    """See the module."""

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
