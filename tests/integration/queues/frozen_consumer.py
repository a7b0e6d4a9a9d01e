"""A consumer that can be frozen at one place: ``python frozen_consumer.py PLACE ADDRESS``.

PLACE says where; see ``PLACES``. There it prints ``here``, and waits for a line. Prints ``begun
VALUE`` for each value that it begins, and ``end`` when it has had time to begin another one after
it went on.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any

from leaderq.dyno import DynoQueue
from leaderq.dyno.consumer import DynoConsumer
from leaderq.errors import LeaderqError
from leaderq.queues import TEXT, BlockingQueueConsumer, DistributedQueue, ErrorMode
from leaderq.queues.consuming.claims import ClaimAttempt
from leaderq.retrying import RetryPolicy
from leaderq.testing import eventually
from leaderq.writing import SequencedWriter
from leaderq.zookeeper import Session, connect

WHILE_S = 1.0
has_gone_on = threading.Event()


def tell(*words: str) -> None:
    os.write(1, (" ".join(words) + "\n").encode())


def freeze() -> None:
    """Be frozen by the parent; once."""
    if not has_gone_on.is_set():
        tell("here")
        os.read(0, 1)
        has_gone_on.set()


def freeze_after(owner: Any, method: str, has_claimed: Callable[[Any], object]) -> None:
    original = getattr(owner, method)

    def wrapped(*args: Any, **options: Any) -> Any:
        if has_claimed(result := original(*args, **options)):
            freeze()
        return result

    setattr(owner, method, wrapped)


def freeze_before(owner: Any, method: str) -> None:
    original = getattr(owner, method)

    def wrapped(*args: Any, **options: Any) -> Any:
        freeze()
        return original(*args, **options)

    setattr(owner, method, wrapped)


def queue(session: Session, **options: Any) -> DistributedQueue[str]:
    made = DistributedQueue(session, "/q", serializer=TEXT, lock_path="/q-locks", **options)
    made.start()
    return made


def take(session: Session) -> None:
    """Between the claim of an item and its hand-out."""
    freeze_after(ClaimAttempt, "finish", lambda found: found.claims)
    take_one(session)


def take_answer(session: Session) -> None:
    """Between the claim of an item and the answer."""
    freeze_before(SequencedWriter, "_answered")
    take_one(session)


def take_one(session: Session) -> None:
    taking, item = queue(session), None
    while item is None and not has_gone_on.is_set():
        item = taking.take(0.1)
    if (item := item or taking.take(WHILE_S)) is not None:
        tell("begun", item.value)


def take_value(session: Session) -> None:
    """Between the first value of a znode and the second."""
    taking = queue(session)
    taking.take()
    freeze()
    if (item := taking.take(WHILE_S)) is not None:
        tell("begun", item.value)


def push(session: Session) -> None:
    """Between the claim of an item and the call of the consumer."""
    freeze_after(ClaimAttempt, "finish", lambda found: found.claims)
    queue(session, consumer=lambda value: tell("begun", value))


def push_value(session: Session) -> None:
    """While the consumer works on the first value of a znode."""

    def consume(value: str) -> None:
        freeze() if value == "a" else tell("begun", value)

    queue(session, consumer=consume)


def keep(session: Session) -> None:
    """While the consumer fails at an item that stays with it."""

    def consume(value: str) -> None:
        if has_gone_on.is_set():
            tell("begun", value)
            return
        freeze()
        raise ValueError("not this one")

    again = RetryPolicy(backoff_s=0.0, jitter=0)
    queue(session, consumer=consume, error_mode=ErrorMode.KEEP, retry=again)


def blocking(session: Session) -> None:
    """While an item waits for a thread that takes it from a blocking consumer."""
    consumer = BlockingQueueConsumer[str]()
    queue(session, consumer=consumer)
    eventually(consumer.size)
    freeze()
    if (value := consumer.take(WHILE_S)) is not None:
        tell("begun", value)


def pop(session: Session) -> None:
    """Between the claim of a message and its hand-out."""
    freeze_after(DynoConsumer, "_taken", bool)
    for one in DynoQueue(session, "/d").pop(1, WHILE_S):
        tell("begun", one.payload.decode())


def pop_id(session: Session) -> None:
    """As ``pop``, of one message by its id."""
    freeze_after(DynoConsumer, "_taken", bool)
    if (one := DynoQueue(session, "/d").pop_id("a")) is not None:
        tell("begun", one.payload.decode())


PLACES = {one.__name__: one for one in (take, take_answer, take_value)}
PLACES |= {one.__name__: one for one in (push, push_value, keep, blocking, pop, pop_id)}


def main(place: str, address: str) -> None:
    session = connect(address, timeout_s=2.0)
    try:
        PLACES[place](session)
    except LeaderqError as exc:
        print(exc, file=sys.stderr)
    has_gone_on.wait()
    threading.Event().wait(WHILE_S)
    tell("end")
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
