"""A connection in use."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from leaderq.errors import LeaderqError
from leaderq.zookeeper import Session


@contextlib.contextmanager
def in_use(*sessions: Session) -> Iterator[None]:
    """A request every few milliseconds, as of a busy leader, of which nobody awaits the answer."""
    stop = threading.Event()

    def run() -> None:
        while not stop.wait(0.005):
            for session in sessions:
                with contextlib.suppress(LeaderqError):
                    session.exists_async("/")

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
