"""Disks that are full: when the test says so, or when so many bytes are in their files."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

from leaderq.producing.journal.disk import Disk


def _no_space() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


class FullDisk(Disk):
    """A disk that takes nothing while ``is_full``, and of ``size`` bytes in all, if given: then the
    last write is short, and no file can be made when all are used.
    """

    is_full = False

    def __init__(self, size: int | None = None) -> None:
        self.size, self.used = size, 0

    def create(self, path: Path) -> int:
        if self.is_full or (self.size is not None and self.used >= self.size):
            raise _no_space()
        return super().create(path)

    def write(self, fd: int, data: Any, offset: int) -> int:
        if self.is_full:
            raise _no_space()
        grows = max(0, offset + len(data) - os.fstat(fd).st_size)
        if self.size is not None and self.used + grows > self.size:
            fits = len(data) - grows + self.size - self.used
            if fits <= 0:
                raise _no_space()
            data = data[:fits]
            grows = self.size - self.used
        written = super().write(fd, data, offset)
        self.used += grows
        return written

    def truncate(self, fd: int, size: int) -> None:
        self.used -= max(0, os.fstat(fd).st_size - size)
        super().truncate(fd, size)

    def remove(self, path: Path) -> None:
        if path.exists():
            self.used -= path.stat().st_size
        super().remove(path)

    def free_bytes(self, path: Path) -> int:
        if self.is_full:
            return 0
        return super().free_bytes(path) if self.size is None else self.size - self.used

    def sync(self, fd: int) -> None:
        pass  # what was written outlives a process

    def sync_directory(self, path: Path) -> None:
        pass
