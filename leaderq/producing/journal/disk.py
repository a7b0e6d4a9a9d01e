"""The few calls a journal makes to the file system, in one place so that tests can make each of
them fail; and the lock on its directory.

One process at a time can open a journal: it holds a lock of the kernel on the file ``lock``. The
kernel removes the lock when that process ends, in whatever way, so there are no stale locks. A
forked child inherits the descriptor, and would keep the lock after its parent's death; so the child
closes the descriptor at once.
"""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from leaderq.base import clock
from leaderq.errors import JournalLocked

NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Disk:
    """The real file system. Every method raises ``OSError`` as the system does, and a write may be
    short."""

    def make_directory(self, path: Path) -> None:
        path.mkdir(exist_ok=True)

    def create(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)

    def open(self, path: Path, *, writable: bool = False) -> int:
        return os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)

    @contextmanager
    def opened(self, path: Path, *, writable: bool = False) -> Iterator[int]:
        fd = self.open(path, writable=writable)
        try:
            yield fd
        finally:
            self.close(fd)

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        return os.pwrite(fd, data, offset)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """Return up to ``size`` bytes from ``offset``; fewer only at the end of the file."""
        return os.pread(fd, size, offset)

    def sync(self, fd: int) -> None:
        """Force a file's data, and the metadata needed to read it, to the disk."""
        getattr(os, "fdatasync", os.fsync)(fd)  # macOS has no fdatasync

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def close(self, fd: int) -> None:
        os.close(fd)

    def rename(self, old: Path, new: Path) -> None:
        old.rename(new)

    def remove(self, path: Path) -> None:
        """Delete a file; one that is gone already is not an error."""
        path.unlink(missing_ok=True)

    def sync_directory(self, path: Path) -> None:
        """Force the names in a directory to the disk: a file whose name is lost is lost."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: Path) -> int:
        """How many bytes an ordinary user may still write to the file system of ``path``."""
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize


def force(disk: Disk, path: Path) -> None:
    with disk.opened(path, writable=True) as fd:
        disk.sync(fd)


def make_directories(disk: Disk, path: Path) -> None:
    """Make a directory and its missing parents, and force the name of each to the disk."""
    missing = [one for one in (path, *path.parents) if not one.is_dir()]
    for one in reversed(missing):
        disk.make_directory(one)
        disk.sync_directory(one.parent)


def write_all(disk: Disk, fd: int, data: bytes, offset: int) -> None:
    """Write all of ``data``. After a short write the rest is tried again, which raises the reason
    if it fails.
    """
    rest = memoryview(data)
    while rest:
        step = disk.write(fd, rest, offset)
        if step <= 0:
            raise OSError(errno.EIO, "the file takes no more bytes, without a reason")
        rest, offset = rest[step:], offset + step


NAME: Final = "lock"
# For one who only looks (is_locked), and for a process that is just ending.
_PATIENCE_S: Final = 0.3
_held: weakref.WeakSet[DirectoryLock] = weakref.WeakSet()


class DirectoryLock:
    """Locks a journal's directory until :meth:`release`.

    :raises JournalLocked: another process holds the lock; the error names the process if it is
        known.
    """

    def __init__(self, directory: Path) -> None:
        self._fd = os.open(directory / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            self._take()
        except BlockingIOError as exc:
            holder = os.pread(self._fd, 32, 0).decode(errors="replace").strip()
            self.release()
            raise JournalLocked(
                f"journal {str(directory)!r} is open in process {holder or 'unknown'}; "
                "a directory serves one journal object at a time: use another, or close that one"
            ) from exc
        with suppress(OSError):  # the disk is full: then the process is not named
            os.pwrite(self._fd, f"{os.getpid():<31}\n".encode(), 0)
        _held.add(self)

    def _take(self) -> None:
        give_up_s = clock.awake_s() + _PATIENCE_S
        while True:
            try:
                return fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if clock.awake_s() > give_up_s:
                    raise
            clock.sleep(0.01)

    @property
    def is_held(self) -> bool:
        return self._fd >= 0

    def release(self) -> None:
        """Let others open the directory. May be called twice."""
        try:
            if self._fd >= 0:
                os.close(self._fd)
        finally:
            self._fd = -1


def is_locked(directory: Path) -> bool:
    """Whether some process has the journal in ``directory`` open now; changes nothing."""
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


def _release_in_child() -> None:
    for lock in list(_held):
        with suppress(OSError):  # the parent was just closing it; it is not held any more either
            lock.release()


os.register_at_fork(after_in_child=_release_in_child)
