"""One opener at a time for a journal's directory.

A lock of the kernel on the file ``lock``: gone with the process that holds it, however that ends, so no stale one is ever
found. A forked child inherits the descriptor, and would keep the lock after its parent's death: it closes it at once.
"""

from __future__ import annotations

import fcntl
import os
import time
import weakref
from pathlib import Path
from typing import Final

from leaderq.errors import JournalLocked

NAME: Final = "lock"
_PATIENCE_S: Final = 0.3  # for one who only looks (is_locked), and for a process that is just ending
_held: weakref.WeakSet[DirectoryLock] = weakref.WeakSet()


class DirectoryLock:
    """Holds the lock until :meth:`release`.

    :raises JournalLocked: somebody else has it; names the process if it can be known.
    """

    def __init__(self, directory: Path) -> None:
        self.is_held = False
        self._fd = os.open(directory / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            self._take()
        except BlockingIOError as exc:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
            self._close()
            raise JournalLocked(
                f"journal {str(directory)!r} is open in process {holder or 'unknown'}; "
                "a directory serves one journal object at a time: use another, or close that one"
            ) from exc
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        self.is_held = True
        _held.add(self)

    def _take(self) -> None:
        give_up_s = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > give_up_s:
                    raise
            time.sleep(0.01)

    def release(self) -> None:
        """Let others open the directory. May be called twice."""
        try:
            if self._fd >= 0:
                self._close()
        finally:
            self.is_held = False

    def _close(self) -> None:
        os.close(self._fd)
        self._fd = -1


def is_locked(directory: Path) -> bool:
    """Whether somebody has it open at present; changes nothing."""
    try:
        fd = os.open(directory / NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _let_go_in_child() -> None:
    for lock in list(_held):
        try:
            lock.release()
        except OSError:
            continue  # the parent was just closing it; this one is not held any more either


os.register_at_fork(after_in_child=_let_go_in_child)
