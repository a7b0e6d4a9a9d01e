"""A disk whose power is cut: what was not forced out survives in any part, file by file, name by
name, sector by sector.

The files are real, so the journal works as always; beside them stands what the platter has for
certain, and what it may have. At some operations a :class:`Moment` is kept; :func:`platter` writes
down one state in which the host may come up again after a cut at that moment.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from leaderq.producing.journal.disk import Disk

SECTOR = 512


@dataclass
class _File:
    """``forced``: its bytes at the last sync; ``since``: what was done to it after that."""

    forced: bytes = b""
    since: list[tuple[int, bytes | None]] = field(default_factory=list)

    def cut(self, keeps: Callable[[], bool]) -> bytes:
        data = bytearray(self.forced)
        for at, written in self.since:
            if written is None:
                if keeps():
                    data[at:] = b""
                continue
            end = at + len(written)
            begin = at
            while begin < end:
                stop = min(end, (begin // SECTOR + 1) * SECTOR)
                if keeps():
                    data.extend(bytes(max(0, stop - len(data))))
                    data[begin:stop] = written[begin - at : stop - at]
                begin = stop
        return bytes(data)


Names = dict[Path, "int | None"]  # None: a directory; -1: gone
GONE = -1


@dataclass
class Moment:
    """All there is to know at one operation; ``facts`` are those of the test."""

    names: Names
    renamed: list[tuple[Path, Names]]
    files: dict[int, _File]
    facts: Any


class PowerCutDisk(Disk):
    """``chance`` of a moment being kept at each operation; ``facts`` is called for each."""

    def __init__(self, root, luck, chance, facts):
        self.moments: list[Moment] = []
        self._luck, self._chance, self._facts = luck, chance, facts
        self._lock = threading.RLock()
        self._names: Names = {}
        self._renamed: list[tuple[Path, Names]] = []  # by directory, not forced out yet
        self._files: dict[int, _File] = {}
        self._ids: dict[Path, int] = {}
        self._open: dict[int, int] = {}
        for path in root.rglob("*"):
            self._names[path] = None if path.is_dir() else self._take(path, path.read_bytes())

    def _take(self, path: Path, data: bytes = b"") -> int:
        number = len(self._files)
        self._files[number] = _File(data)
        self._ids[path] = number
        return number

    @contextmanager
    def _step(self) -> Iterator[None]:
        with self._lock:
            if self._luck.random() < self._chance:
                self.moments.append(self.now())
            yield

    def now(self) -> Moment:
        with self._lock:
            files = {at: replace(one, since=[*one.since]) for at, one in self._files.items()}
            return Moment(dict(self._names), list(self._renamed), files, self._facts())

    def make_directory(self, path: Path) -> None:
        with self._step():
            super().make_directory(path)
            self._renamed.append((path.parent, {path: None}))

    def create(self, path: Path) -> int:
        with self._step():
            fd = super().create(path)
            self._open[fd] = number = self._take(path)
            self._renamed.append((path.parent, {path: number}))
            return fd

    def open(self, path: Path, *, writable: bool = False) -> int:
        with self._lock:
            fd = super().open(path, writable=writable)
            self._open[fd] = self._ids[path]
            return fd

    def close(self, fd: int) -> None:
        with self._lock:
            self._open.pop(fd, None)
            super().close(fd)

    def write(self, fd: int, data: bytes | memoryview, offset: int) -> int:
        with self._step():
            written = super().write(fd, data, offset)
            self._files[self._open[fd]].since.append((offset, bytes(data[:written])))
            return written

    def truncate(self, fd: int, size: int) -> None:
        with self._step():
            super().truncate(fd, size)
            self._files[self._open[fd]].since.append((size, None))

    def sync(self, fd: int) -> None:
        with self._step():
            file = self._files[self._open[fd]]
            file.forced, file.since = file.cut(lambda: True), []

    def rename(self, old: Path, new: Path) -> None:
        with self._step():
            super().rename(old, new)
            self._ids[new] = self._ids.pop(old)
            self._renamed.append((new.parent, {old: GONE, new: self._ids[new]}))

    def remove(self, path: Path) -> None:
        with self._step():
            super().remove(path)
            self._ids.pop(path, None)
            self._renamed.append((path.parent, {path: GONE}))

    def sync_directory(self, path: Path) -> None:
        with self._step():
            for where, change in self._renamed:
                if where == path:
                    self._names.update(change)
            self._renamed = [one for one in self._renamed if one[0] != path]


def platter(moment, root, place, luck, share=None):
    """Write down below ``place`` what a host may find below ``root`` after a cut at ``moment``;
    ``share`` of what was not forced out survives."""
    if share is None:
        share = luck.choice([0.0, 0.0, 0.1, 0.5, 0.9, 1.0])

    def keeps() -> bool:
        return luck.random() < share

    names = dict(moment.names)
    for _, change in moment.renamed:
        if keeps():
            names.update(change)
    for path in sorted(names):
        number, target = names[path], place / path.relative_to(root)
        if number == GONE or not target.parent.is_dir():
            continue
        if number is None:
            target.mkdir()
        else:
            target.write_bytes(moment.files[number].cut(keeps))
