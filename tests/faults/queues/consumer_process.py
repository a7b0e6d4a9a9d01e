"""A consumer in a process of its own: ``python consumer_process.py NAME ADDRESS HISTORY
pull|push``.

Consumes ``/q`` with the lock path ``/q-locks``. Pull: takes one item after the other, and
acknowledges each together with a znode ``/done/VALUE``, which can be created once only. Push: has a
handler. Appends to HISTORY, one JSON object a line in one write: ``begun``, and then ``done``,
``refused`` or ``twice``; and ``lost`` with a ``session`` when the end of that is heard of.

``begun`` says more, since a process may be kept from running at any place for as long as the
machine likes: by which ``session`` the item is held; from when on it may have been ``claimed``; and
when this thread had ``looked`` whether it may be begun, and been told that it may. ``sure_until``:
so long the session lasts for certain.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import Any

from leaderq.clock import now_s
from leaderq.errors import ClaimLost, LeaderqError, NodeExists
from leaderq.queues import TEXT, DistributedQueue
from leaderq.queues.consuming.claims import Claim
from leaderq.queues.consuming.engine import Engine
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


class LastLook(threading.local):
    """What this thread knows of the claim that might be begun when it last looked; for one
    beginning.
    """

    known: dict[str, Any] | None = None

    def take(self) -> dict[str, Any]:
        known, self.known = self.known, None
        return known or dict.fromkeys(("claimed", "sure_until", "looked", "session"))


look = LastLook()


def note_looks() -> None:
    """Note when each claim is made, and each answer that it may be begun; the moment just
    before.
    """
    made_at: dict[int, float] = {}  # by the id of a claim, which is used again
    finish, ask = Claim.__post_init__, Engine.may_be_begun

    def made(claim: Claim) -> None:
        made_at[id(claim)] = time.monotonic()
        finish(claim)

    def may_be_begun(engine: Engine, claim: Claim) -> bool:
        at, claimed = time.monotonic(), made_at[id(claim)]
        if may := ask(engine, claim):
            look.known = {
                "claimed": claimed,
                "sure_until": time.monotonic() + claim.membership.writer.sure_until_s - now_s(),
                "looked": at,
                "session": claim.membership.session_id,
            }
        return may

    Claim.__post_init__ = made  # type: ignore[assignment, method-assign]
    Engine.may_be_begun = may_be_begun  # type: ignore[assignment, method-assign]


def pull(session: Session, history: History) -> None:
    queue = DistributedQueue(
        session, "/q", serializer=TEXT, lock_path="/q-locks", put_in_background=True
    )
    queue.start()
    for item in queue:
        history.tell("begun", item.value, **look.take())
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
        history.tell("begun", value, **look.take())
        time.sleep(WORK_S)
        history.tell("done", value)

    queue = DistributedQueue(session, "/q", consumer=consume, serializer=TEXT, lock_path="/q-locks")
    queue.start()
    threading.Event().wait()


def main(name: str, address: str, path: str, mode: str) -> None:
    history = History(name, path)
    session = connect(address, timeout_s=2.0)
    ids = [session.id]

    def heard(state: SessionState) -> None:
        if state is SessionState.CONNECTED:
            ids.append(session.id)
        elif state is SessionState.LOST:
            history.tell("lost", session=ids[-1])

    session.add_listener(heard)
    note_looks()
    (push if mode == "push" else pull)(session, history)


if __name__ == "__main__":
    main(*sys.argv[1:])
