"""Stops processes, and returns when they stand still.

``kill -STOP`` returns before anything has stopped. On a busy machine the threads of a process go on
for some tenths of a second, until one of them has taken the signal.
"""

from __future__ import annotations

import os
import signal
from functools import partial

from leaderq.running.descendants import stat_of, tasks_of
from leaderq.testing.waiting import eventually

_STOPPED = frozenset("TtZX")


def freeze(*pids: int) -> None:
    """Send SIGSTOP to each process that exists; return when none of their threads runs any more."""
    for pid in pids:
        try:
            os.kill(pid, signal.SIGSTOP)
        except ProcessLookupError:
            continue
    for pid in pids:
        eventually(partial(_has_stopped, pid), interval_s=0.002, message=f"process {pid} stops")


def _has_stopped(pid: int) -> bool:
    """Whether no thread of ``pid`` runs; also true if the process is gone, or the system does not
    tell.
    """
    for thread in tasks_of(pid):
        state = stat_of(f"{pid}/task/{thread.name}")[:1]
        if not _STOPPED.issuperset(state):
            return False
    return True
