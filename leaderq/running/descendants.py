"""Finds and ends the processes that a process has started, directly or through others.

They are found through ``/proc`` (Linux); on other systems none is found. A process is identified by
its number and the time at which it began, because numbers are used again.

The search needs a file descriptor. If the system has none left, or no memory, the functions here
raise ``OSError``, so that no process counts as gone that could not be looked for. Only
:func:`end_all` and :func:`end_started` try again instead.

Orphans of a worker become children of its guardian, which reaps them. If the guardian is killed,
they become children of process 1, and nothing there tells whose they are: :class:`Orphans` finds
them again. The worker adopts nothing while its guardian lives, because it could not tell a dead
orphan from a child that the career is about to wait for.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from leaderq.base import clock
from leaderq.threads import Service

MARK = "LEADERQ_GUARDIAN_MARK"
"""The variable of the environment that has one value for all processes below one guardian."""
_PR_SET_CHILD_SUBREAPER = 36
_NOTE_S = 0.25
_NOT_THERE = (FileNotFoundError, ProcessLookupError, PermissionError)


class Started(NamedTuple):
    """One process; ``began`` is when it began, in clock ticks since the host started."""

    pid: int
    began: int


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process, where the system can."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def children_of(pid: int) -> set[int]:
    """The children of a process, with the dead ones that nobody has reaped."""
    pids: set[int] = set()
    for task in tasks_of(pid):
        with suppress(*_NOT_THERE):
            pids.update(map(int, (task / "children").read_bytes().split()))
    return pids


def tasks_of(pid: int) -> list[Path]:
    """The ``/proc`` folders of the threads of a process; none if it is gone or the system has no
    ``/proc``.
    """
    try:
        return list(Path(f"/proc/{pid}/task").iterdir())  # no glob: it raises if they go meanwhile
    except _NOT_THERE:
        return []


def stat_of(task: int | str) -> list[str]:
    """The fields of ``/proc/TASK/stat``, beginning with the state; empty if it cannot be read.

    ``task`` is the number of a process, or a thread as ``PID/task/TID``.
    """
    try:
        stat = Path(f"/proc/{task}/stat").read_bytes()
    except _NOT_THERE:
        return []
    return stat.rpartition(b")")[2].decode().split()  # without the name: it may be any bytes


def began_of(stat: Sequence[str]) -> int:
    """When a process began, by the fields of :func:`stat_of`: ticks since the host started."""
    return int(stat[19])


def descendants_of(*roots: int) -> set[Started]:
    """The living processes below ``roots``, without ``roots`` themselves."""
    return {one for _, one in _below(*roots) if one is not None}


def kill(processes: set[Started]) -> set[Started]:
    return send(processes, signal.SIGKILL)


def send(processes: set[Started], number: signal.Signals) -> set[Started]:
    """Send a signal to those of ``processes`` that still live and may be signalled; return them."""
    sent = set()
    for one in processes:
        with suppress(ProcessLookupError, PermissionError):
            if _living(one.pid) == one:
                os.kill(one.pid, number)
                sent.add(one)
    return sent


def kill_below(root: int, *, but: int = 0) -> set[Started]:
    """Kill everything below ``root``; return the processes that were alive. Processes that are
    started meanwhile may escape.

    ``but`` is a process below ``root`` to spare; it must lead its process group. All other groups,
    except that of this process, are killed as a whole, also those of dead processes: a process that
    forks and ends again and again escapes every listing, but a signal to its group reaches it.
    """
    found: set[Started] = set()
    spared = {0, os.getpgrp(), but}
    for pid, one in _below(root):
        if pid == but:
            continue
        if one is not None:
            found.add(one)
        with suppress(ProcessLookupError, PermissionError):
            if (group := os.getpgid(pid)) not in spared:
                os.killpg(group, signal.SIGKILL)
            elif one is not None:
                os.kill(pid, signal.SIGKILL)
    return found


def end_all(root: int, *, within_s: float, but: int = 0) -> bool:
    """Call :func:`kill_below` until nothing is left, for at most ``within_s`` seconds; return
    whether nothing is left. If the processes cannot be listed, try again.
    """
    return _ended(lambda: kill_below(root, but=but), within_s)


def end_started(*, within_s: float) -> bool:
    """Do what :func:`end_all` does for this process; also end the orphans that a dead guardian
    left.
    """
    return _ended(lambda: kill_below(os.getpid()) | kill(_orphans()), within_s)


def _ended(kill_some: Callable[[], set[Started]], within_s: float) -> bool:
    end_s = clock.now_s() + within_s
    while True:
        with suppress(OSError):
            if not kill_some():
                return True
        if clock.now_s() >= end_s:
            return False
        time.sleep(0.001)


def signal_name(number: int) -> str:
    """The name of a signal, also of one that has no name in Python, such as most real-time
    signals.
    """
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIG{number}"


class Orphans:
    """The processes that this process, the worker of ``guardian``, has started and that the
    guardian had adopted when it died. They are known by two traits: they were below the guardian at
    the last :meth:`note`, or they have the guardian's :data:`MARK` in their environment.

    Not guaranteed: to find a process that became an orphan after the last ``note``, if it has also
    cleared its environment.
    """

    def __init__(self, guardian: int, mark: str) -> None:
        self._guardian = guardian
        self._mark = f"{MARK}={mark}".encode() if mark else None
        self._noted: set[Started] = set()

    def note(self) -> float | None:
        """Look at the guardian's children once; return after how many seconds to look again,
        ``None`` if the guardian is dead. From then on this process adopts new orphans.
        """
        with suppress(OSError):  # it cannot be looked now
            living = {_living(pid) for pid in children_of(self._guardian) - {os.getpid()}}
            if os.getppid() == self._guardian:
                self._noted = {one for one in living if one is not None}
        if os.getppid() == self._guardian:
            return _NOTE_S
        adopt_orphans()
        return None

    def left(self) -> set[Started]:
        """The living orphans, with what they have started; none while the guardian lives."""
        if os.getppid() == self._guardian:
            return set()
        found = {one for one in self._noted if _living(one.pid) == one} | self._marked()
        return found | descendants_of(*(one.pid for one in found))

    def _marked(self) -> set[Started]:
        if self._mark is None:
            return set()
        found = set()
        for folder in Path("/proc").iterdir():
            if folder.name.isdecimal() and int(folder.name) != os.getpid():
                with suppress(*_NOT_THERE):
                    environment = (folder / "environ").read_bytes()
                    if self._mark in environment.split(b"\0"):
                        found.add(_living(int(folder.name)))
        return {one for one in found if one is not None}


_watched: Orphans | None = None


def watch_orphans(guardian: int) -> None:
    """Keep track of the orphans of this process, the worker of ``guardian``, in case the guardian
    is killed.
    """
    global _watched
    _watched = Orphans(guardian, os.environ.get(MARK, ""))
    Service.repeating("leaderq-orphans", _watched.note).start()


def _orphans() -> set[Started]:
    return set() if _watched is None else _watched.left()


class StartedInTerm:
    """The processes that this process, the worker of ``guardian``, starts in one term, with the
    orphans that the guardian, dead or alive, has adopted. The helpers that ``multiprocessing``
    keeps for the life of the process (its resource tracker and fork server) do not count.
    """

    def __init__(self, guardian: int) -> None:
        self._guardian = guardian
        self._since = int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))

    def kill_left(self) -> set[Started]:
        """Kill the processes that were started since this object was made and still live; return
        them.
        """
        roots = {os.getpid()} if _has_children() else set()
        if os.getppid() == self._guardian:  # else it is dead, and its number perhaps another's
            roots.add(self._guardian)
        kept = {os.getpid(), *_multiprocessing_helpers()}
        found = descendants_of(*roots) | _orphans()
        return kill({one for one in found if one.began >= self._since and one.pid not in kept})


def _below(*roots: int) -> Iterator[tuple[int, Started | None]]:
    """Yields the number of every process below ``roots`` as it is found, with ``None`` if it is
    dead and not reaped.
    """
    seen = set(roots)
    unvisited = list(roots)
    while unvisited:
        for pid in children_of(unvisited.pop()) - seen:
            seen.add(pid)
            one = _living(pid)
            if one is not None and (pid != os.getpid() or _has_children()):
                unvisited.append(pid)
            yield pid, one


def _has_children() -> bool:
    """Whether this process has children, dead or alive; cheaper than a look at each of its
    threads.
    """
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _living(pid: int) -> Started | None:
    if not (fields := stat_of(pid)):
        return None
    # A process is shown as dead when its first thread is; other threads may still run.
    is_dead = fields[0] in ("Z", "X") and int(fields[17]) <= 1
    return None if is_dead else Started(pid, began_of(fields))


def _multiprocessing_helpers() -> set[int]:
    tracker = sys.modules.get("multiprocessing.resource_tracker")
    server = sys.modules.get("multiprocessing.forkserver")
    pids = {
        getattr(getattr(tracker, "_resource_tracker", None), "_pid", None),
        getattr(getattr(server, "_forkserver", None), "_forkserver_pid", None),
    }
    return {pid for pid in pids if isinstance(pid, int)}
