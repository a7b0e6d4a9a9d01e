"""A file layer that fails when told, and tools to hurt a journal's files by hand."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from leaderq.producing.journal.disk import Disk
from leaderq.producing.journal.records import HEAD_BYTES
from leaderq.producing.journal.segments import HEADER_BYTES


class FaultyDisk(Disk):
    """The real disk, but ``fail[name]`` is called with the arguments before a call of this name and
    may raise; ``room`` is the number of bytes that may still be written (a write beyond is short,
    the next one fails); ``free`` is what the file system says of itself, if it is not to be asked.
    """

    def __init__(self) -> None:
        self.fail: dict[str, Callable[..., None]] = {}
        self._room: int | None = None
        self.free: int | None = None
        self._counting = threading.Lock()
        self.calls: list[str] = []
        self.blocked = threading.Event()
        self.blocked.set()
        self.waiting = False

    def _before(self, name: str, *args: Any) -> None:
        self.calls.append(name)
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
        return super().create(path)

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        self._before("write", fd, data, offset)
        with self._counting:
            # what is there can be written over
            if self._room is not None and offset + len(data) > os.fstat(fd).st_size:
                if self._room <= 0:
                    raise no_space()
                data = data[: self._room]
                self._room -= len(data)
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
        free = self._room if self.free is None else self.free
        return super().free_bytes(path) if free is None else free

    def rename(self, old: Path, new: Path) -> None:
        self._before("rename", old, new)
        super().rename(old, new)


def no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def io_error() -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO))


def failing(
    error: Callable[[], OSError], times: int = 1, only: Callable[..., bool] = lambda *_: True
) -> Callable[..., None]:
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


def crash(journal: Any) -> None:
    """What is left of a journal whose process was killed: nothing is saved, nothing closed
    properly; the lock is free.
    """
    journal._cursor.tidy = lambda: None
    journal._store.sync = lambda: None
    journal._closed = True
    assert journal._committer.service.stop(10)
    journal._reader.close()
    journal._cursor.close()
    journal._store.close()
    journal._lock.release()
