"""What the queues of this process do when it forks, and when it exits."""

from __future__ import annotations

import atexit
import os
import threading
import weakref
from typing import Protocol

from leaderq.clock import now_s
from leaderq.singular.waits import forget_all

AT_EXIT_S = 10.0
"""How long the queues that nobody closed may take, together, when the interpreter exits."""


class Watched(Protocol):
    """A queue, as seen from here."""

    def renounce(self) -> None:
        """This process was forked from the queue's."""

    def close_at_exit(self, timeout_s: float) -> None:
        """The interpreter exits."""


_watched: weakref.WeakSet[Watched] = weakref.WeakSet()
_watching = threading.Lock()


def watch(queue: Watched) -> None:
    """``queue`` has a thread from now on."""
    with _watching:
        _watched.add(queue)


def _renounce_all() -> None:
    global _watching
    _watching = threading.Lock()  # another thread of the parent may have held it
    forget_all()
    for queue in list(_watched):
        queue.renounce()
    _watched.clear()


def _close_all() -> None:
    until_s = now_s() + AT_EXIT_S
    with _watching:
        queues = list(_watched)
    for queue in queues:
        queue.close_at_exit(max(0.0, until_s - now_s()))


os.register_at_fork(after_in_child=_renounce_all)
atexit.register(_close_all)
