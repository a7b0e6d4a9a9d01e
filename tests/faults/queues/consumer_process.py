"""A consumer in a process of its own: ``python consumer_process.py NAME ADDRESS HISTORY
pull|push``.

Consumes ``/q`` with the lock path ``/q-locks``. Pull: takes one item after the other, and
acknowledges each together with a znode ``/done/VALUE``, which can be created once only. Push: has a
handler. Appends to HISTORY, one JSON object a line in one write: ``begun``, and then ``done``,
``refused`` or ``twice``; and ``lost`` when its session is over.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from leaderq.errors import ClaimLost, LeaderqError, NodeExists
from leaderq.queues import TEXT, DistributedQueue
from leaderq.zookeeper import Create, Session, SessionState, connect

WORK_S = 0.01


class History:
    """What this consumer did."""

    def __init__(self, name: str, path: str) -> None:
        self._name = name
        self._out = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)

    def tell(self, what: str, value: str = "", **more: Any) -> None:
        said = {
            "at": time.monotonic(),
            "who": self._name,
            "pid": os.getpid(),
            "what": what,
            "value": value,
            **more,
        }
        os.write(self._out, json.dumps(said).encode() + b"\n")


def pull(session: Session, history: History) -> None:
    queue = DistributedQueue(
        session, "/q", serializer=TEXT, lock_path="/q-locks", put_in_background=True
    )
    queue.start()
    for item in queue:
        history.tell("begun", item.value)
        time.sleep(WORK_S)
        try:
            item.ack([Create(f"/done/{item.value}")])
            history.tell("done", item.value)
        except NodeExists as exc:
            history.tell("twice", item.value, error=str(exc))
        except (ClaimLost, LeaderqError) as exc:
            history.tell("refused", item.value, error=f"{type(exc).__name__}: {exc}")


def push(session: Session, history: History) -> None:
    def consume(value: str) -> None:
        history.tell("begun", value)
        time.sleep(WORK_S)
        history.tell("done", value)

    queue = DistributedQueue(session, "/q", consumer=consume, serializer=TEXT, lock_path="/q-locks")
    queue.start()
    threading.Event().wait()


def main(name: str, address: str, path: str, mode: str) -> None:
    history = History(name, path)
    session = connect(address, timeout_s=2.0)
    session.add_listener(lambda state: history.tell("lost") if state is SessionState.LOST else None)
    (push if mode == "push" else pull)(session, history)


if __name__ == "__main__":
    main(*sys.argv[1:])
