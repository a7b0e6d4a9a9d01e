"""The few calls a journal makes to the file system, in one place so that tests can make each of them fail."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

_force_data: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class Disk:
    """The real file system. Every method raises ``OSError`` as the system does, and a write may be short."""

    def create(self, path: Path) -> int:
        """Open a new file for reading and writing; it must not exist."""
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)

    def open(self, path: Path, *, writable: bool = False) -> int:
        """Open a file that exists."""
        return os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        """Write at ``offset``; gives how many bytes were."""
        return os.pwrite(fd, data, offset)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        """Up to ``size`` bytes from ``offset``; fewer at the end of the file only."""
        return os.pread(fd, size, offset)

    def sync(self, fd: int) -> None:
        """Force a file's data, and what is needed to find it, to the disk."""
        _force_data(fd)

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file off."""
        os.ftruncate(fd, size)

    def close(self, fd: int) -> None:
        """Close a file."""
        os.close(fd)

    def rename(self, old: Path, new: Path) -> None:
        """Rename within a directory."""
        old.rename(new)

    def remove(self, path: Path) -> None:
        """Delete a file; one that is gone already is no error."""
        path.unlink(missing_ok=True)

    def sync_directory(self, path: Path) -> None:
        """Force the names in a directory to the disk: a file whose name is lost is lost."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: Path) -> int:
        """What an ordinary user may still write to the file system of ``path``."""
        stat = os.statvfs(path)
        return stat.f_bavail * stat.f_frsize


def write_all(disk: Disk, fd: int, data: bytes, offset: int) -> None:
    """Write all of ``data``; a short write is gone on with, and the reason for it is then raised by the next.

    :raises OSError: not all of it was written.
    """
    written = disk.write(fd, data, offset)
    if written == len(data):
        return
    rest = memoryview(data)
    while written < len(data):
        step = disk.write(fd, rest[written:], offset + written)
        if step <= 0:
            raise OSError(5, "the file takes no more bytes, and gives no reason")
        written += step
