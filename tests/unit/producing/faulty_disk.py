"""A file layer that fails when told, and tools to hurt a journal's files by hand."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from leaderq.producing.journal import Journal
from leaderq.producing.journal.disk import Disk
from leaderq.producing.journal.records import HEAD_BYTES
from leaderq.producing.journal.segments import HEADER_BYTES


class FaultyDisk(Disk):
    """The real disk, except that ``fail[name]`` is called with the arguments before a call of this
    name and may raise. ``room``: how many bytes may still be written (then a write is short, the
    next one fails, and no file can be made); ``is_full``: it takes nothing at all; ``free``: what
    the file system says of itself, if it is not to be asked.
    """

    def __init__(self, room: int | None = None) -> None:
        self.fail: dict[str, Callable[..., object]] = {}
        self.free: int | None = None
        self.is_full = False
        self._room, self._counting = room, threading.Lock()
        self.blocked = threading.Event()
        self.blocked.set()
        self.waiting = False

    def _before(self, name: str, *args: Any) -> None:
        if name in self.fail:
            self.fail[name](*args)

    @property
    def room(self) -> int | None:
        return self._room

    @room.setter
    def room(self, size: int | None) -> None:
        with self._counting:  # else the journal's thread, amid a count, puts the old room back
            self._room = size

    def _give_back(self, size: int) -> None:
        with self._counting:
            if self._room is not None:
                self._room += max(0, size)

    def create(self, path: Path) -> int:
        self._before("create", path)
        if self.is_full or (self._room is not None and self._room <= 0):
            raise no_space()
        return super().create(path)

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        self._before("write", fd, data, offset)
        if self.is_full:
            raise no_space()
        with self._counting:
            grows = max(0, offset + len(data) - os.fstat(fd).st_size)
            if self._room is not None and grows:
                data = data[: len(data) - max(0, grows - self._room)]
                if not data:
                    raise no_space()
                self._room -= min(grows, self._room)
        return super().write(fd, data, offset)

    def read(self, fd: int, size: int, offset: int) -> bytes:
        self._before("read", fd, size, offset)
        return super().read(fd, size, offset)

    def sync(self, fd: int) -> None:
        self.waiting = not self.blocked.is_set()
        self.blocked.wait(30)
        self._before("sync", fd)
        super().sync(fd)

    def truncate(self, fd: int, size: int) -> None:
        self._before("truncate", fd, size)
        self._give_back(os.fstat(fd).st_size - size)
        super().truncate(fd, size)

    def remove(self, path: Path) -> None:
        self._before("remove", path)
        self._give_back(path.stat().st_size if path.exists() else 0)
        super().remove(path)

    def free_bytes(self, path: Path) -> int:
        if self.is_full:
            return 0
        free = self._room if self.free is None else self.free
        return super().free_bytes(path) if free is None else free

    def rename(self, old: Path, new: Path) -> None:
        self._before("rename", old, new)
        super().rename(old, new)


class QuickDisk(FaultyDisk):
    """Forces nothing out: what was written outlives a process, and no power is cut."""

    def sync(self, fd: int) -> None:
        self._before("sync", fd)

    def sync_directory(self, path: Path) -> None:
        pass


no_space = partial(OSError, errno.ENOSPC, os.strerror(errno.ENOSPC))
io_error = partial(OSError, errno.EIO, os.strerror(errno.EIO))


def failing(error, times=1, only=lambda *_: True):
    """Fails the next so many calls that ``only`` is true of."""
    left = [times]

    def fail(*args: Any) -> None:
        if left[0] > 0 and only(*args):
            left[0] -= 1
            raise error()

    return fail


def segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.seg"))


def is_segment(directory: Path, fd: int) -> bool:
    """Whether this is a file of records; acknowledgements are saved at any time."""
    return os.fstat(fd).st_ino in {path.stat().st_ino for path in segments(directory)}


def flip(path: Path, offset: int, mask: int = 0x40) -> None:
    """Change bits of one byte; a negative offset counts from the end."""
    data = bytearray(path.read_bytes())
    data[offset] ^= mask
    path.write_bytes(data)


def cut(path: Path, size: int) -> None:
    os.truncate(path, size if size >= 0 else path.stat().st_size + size)


def at_record(position: int, payload_bytes: int) -> int:
    """The offset of a record's head where all payloads are of one size."""
    return HEADER_BYTES + position * (HEAD_BYTES + payload_bytes)


def payloads(journal: Any, after_id: int = 0) -> list[bytes]:
    """All that is not acknowledged, read in small steps."""
    found = []
    while entries := journal.read(after_id, max_items=7):
        found += [entry.payload for entry in entries]
        after_id = entries[-1].id
    return found


def reopened(place: Path) -> list[bytes]:
    with Journal(place) as journal:
        assert not journal.report.damages
        return payloads(journal)


def crash(journal: Any) -> None:
    """What a killed process leaves: nothing saved, nothing closed properly; the lock is free. What
    waits in the line is neither written nor told.
    """
    journal._index.tidy = lambda: None
    with journal._gate:
        journal._committer.batches.clear()
        journal._committer.callbacks.clear()
        journal._closed = True
    assert journal._committer.service.stop(10)
    journal._index.close()
    journal._committer.close()
    journal._lock.release()
