"""Queues filled by hand, put into and consumed, for the tests of queues."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from leaderq.base.timeouts import Deadline
from leaderq.queues.consumers import QueueOptions
from leaderq.queues.consuming import Consumption
from leaderq.queues.wire.names import QueueKind, prefix_for, sequence_of
from leaderq.queues.wire.payload import decode, encode
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.testing import eventually
from leaderq.zookeeper import Create, GetData, Session
from leaderq.zookeeper.retrying import retry_until_connected

PATH, LOCKS = "/q", "/q-locks"
LOCKING = pytest.mark.parametrize("lock", [True, False], ids=["with-locks", "without"])


def fill(
    session: Session,
    values: Sequence[bytes],
    kind: QueueKind = QueueKind.PLAIN,
    path: str = PATH,
    **name: Any,
) -> list[str]:
    """Put each value in a znode of its own, all in one multi; gives their names."""
    session.ensure_path(path)
    prefix = prefix_for(kind, **name)
    made = session.multi(
        [Create(f"{path}/{prefix}", encode([value]), sequential=True) for value in values]
    )
    return [one.rpartition("/")[2] for one in made]


class Seen:
    def __init__(self) -> None:
        self.values: list[Any] = []

    def __call__(self, value: Any) -> None:
        self.values.append(value)

    def wait_for(self, count: int, timeout_s: float = 60.0) -> list[Any]:
        """All values, once there are so many."""
        eventually(lambda: len(self.values) >= count, timeout_s=timeout_s)
        return list(self.values)


class Held:
    def __init__(self) -> None:
        self.seen = Seen()
        self.entered = threading.Event()
        self.released = threading.Event()

    def __call__(self, value: Any) -> None:
        self.seen(value)
        self.entered.set()
        assert self.released.wait(120)


class Flaky:
    """Fails so often on each value that contains ``bad``."""

    def __init__(self, failures: int) -> None:
        self.left = failures
        self.seen = Seen()

    def __call__(self, value: Any) -> None:
        self.seen(value)
        if b"bad" in value and self.left:
            self.left -= 1
            raise ValueError("not this one")


@contextmanager
def consuming(
    session: Session,
    consumer: Callable[[Any], object] | None = None,
    *,
    lock: bool = True,
    kind: QueueKind = QueueKind.PLAIN,
    **plan: Any,
) -> Any:
    """A started consumption, closed at the end; with ``lock``, under the common lock path."""
    one: Consumption[bytes] = Consumption(
        session,
        QueuePaths(PATH, LOCKS if lock else None),
        kind,
        QueueOptions(consumer=consumer, **plan),
    )
    retry_until_connected(one.start)
    try:
        yield one
    finally:
        one.close(30.0)


def taken(queue: Consumption[Any]) -> Any:
    return queue.take(Deadline(60), lambda: None)


def is_empty(session: Session) -> bool:
    return not session.children(PATH)


def stored(session: Session, path: str = PATH) -> list[bytes]:
    names = sorted(session.children(path), key=sequence_of)
    found = session.multi_read([GetData(f"{path}/{name}") for name in names])
    # others were taken meanwhile
    return [one for read in found if isinstance(read, tuple) for one in decode(read[0]).items]


def numbered(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]
