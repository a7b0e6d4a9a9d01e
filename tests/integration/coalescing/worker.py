"""A process that takes part in the coalescing of a key, to be killed and frozen. It does what
standard input says, a line at a time.

python worker.py ADDRESS ROOT NAME SESSION_TIMEOUT_S

======================  ======================================================================
``enqueue KEY``         answers with the outcome and the fencing number
``current``             answers ``True`` or ``False``
``write PATH TEXT``     writes with the fence; answers ``written``, or the error's class
``dequeue``             answers ``True`` or ``False``
``rounds COUNT KEY``    so many requests for the key, each run written down between ``begin``
                        and ``end`` in ``/history``, whatever was answered at ``/answers``;
                        answers ``done``
``crowd SECONDS``       requests for keys that change twice a second, most of them impatient;
                        runs, and runs that cover others, are written down in ``/runs``
                        when they begin, and again when they end, requests that were declined
                        at ``/declined``; answers ``done``
``idle``                answers ``True`` once all that was declined here is covered
======================  ======================================================================
"""

from __future__ import annotations

import json
import random
import sys
import time

from leaderq.coalescing.automaton import EnqueueOutcome
from leaderq.coalescing.distributed import DistributedQueueCoordinator, DistributedToken
from leaderq.errors import LeaderqError
from leaderq.zookeeper import Create, Session, SetData, connect


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

    def rounds(self, count: str, key: str) -> str:
        chance = random.Random(self._name)
        answers = []
        for _ in range(int(count)):
            asked_s = time.monotonic()
            with self._coordinator.enqueue(key) as token:
                answered_s = time.monotonic()
                answers.append([token.outcome.name, asked_s, answered_s])
                if token.outcome is not EnqueueOutcome.DECLINE:
                    self._run(token, chance)
            time.sleep(chance.random() * 0.01)
        self._session.create("/answers/a-", json.dumps(answers).encode(), sequential=True)
        return "done"

    def crowd(self, seconds: str) -> str:
        chance = random.Random(self._name)
        self._coordinator = DistributedQueueCoordinator(
            self._session, self._root, cover=self._note_run
        )
        until_s = time.monotonic() + float(seconds)
        declined = []
        while time.monotonic() < until_s:
            asked_s = time.monotonic()
            key = f"k{int(asked_s * 2)}"
            try:
                with self._coordinator.enqueue(
                    key, timeout_s=chance.choice((0.0, 0.01, 0.05, 20.0))
                ) as token:
                    if token.outcome is EnqueueOutcome.DECLINE:
                        declined.append([key, asked_s])
                    else:
                        self._note_run(key)
            except LeaderqError:
                pass
            time.sleep(chance.random() * 0.02)
        self._session.create("/declined/d-", json.dumps(declined).encode(), sequential=True)
        return "done"

    def _note_run(self, key: str | bytes) -> None:
        began = json.dumps([key, time.monotonic()]).encode()
        path = self._session.create("/runs/r-", began, sequential=True)
        time.sleep(random.random() * 0.05)
        self._session.set(path, began)

    def idle(self) -> str:
        coverage = self._coordinator._coverage
        while not coverage.is_idle:
            time.sleep(0.02)
        return "True"

    def _run(self, token: DistributedToken, chance: random.Random) -> None:
        token.write(
            [Create("/history/h-", f"begin {token.number} {self._name}".encode(), sequential=True)]
        )
        time.sleep(chance.random() * 0.002)
        token.write(
            [Create("/history/h-", f"end {token.number} {self._name}".encode(), sequential=True)]
        )


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
