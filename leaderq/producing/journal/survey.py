"""Looks at a journal's directory without changing anything: what opening it, and ``leaderq journal inspect``, begin with."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from leaderq.producing.journal.cursor import Cursor, Known, newest, read_slots
from leaderq.producing.journal.disk import Disk
from leaderq.producing.journal.record import HEAD_BYTES, salt_of
from leaderq.producing.journal.scanning import WINDOW, Reading, Run, Span, Spoilt, scan
from leaderq.producing.journal.segment_header import HEADER_BYTES, VERSION, SegmentHeader, decode, parse_name, set_aside_id


@dataclass(frozen=True)
class SegmentFile:
    """A segment's file as it lies there; ``header`` is ``None`` if it is torn or spoilt."""

    first_id: int
    stamp: int
    path: Path
    size: int
    header: SegmentHeader | None

    @property
    def is_foreign(self) -> bool:
        """Whether a later version of leaderq wrote it."""
        return self.header is not None and self.header.version != VERSION

    @property
    def is_stub(self) -> bool:
        """Whether the making of it was interrupted: no record was ever in it."""
        return self.header is None and self.size < HEADER_BYTES


@dataclass(frozen=True)
class Survey:
    """What lies in a directory. ``complete`` are the segments whose records and bytes are known unread."""

    files: list[SegmentFile]
    bad: list[Path]
    slots: list[Cursor | None]
    cursor: Cursor | None
    complete: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def stamp(self) -> int | None:
        """The journal's stamp, if a file tells it."""
        return self.files[-1].stamp if self.files else None

    @property
    def bad_slots(self) -> int:
        """Cursor slots torn or spoilt. The second of a journal that never saved twice holds zeros, which is not counted."""
        return sum(slot is None for slot in self.slots)

    @property
    def is_new(self) -> bool:
        """Whether no journal was here."""
        return not self.files and not self.bad and all(slot is None for slot in self.slots)

    def known(self, first_id: int) -> Known | None:
        """What the cursor holds of a segment."""
        return self.cursor.segments.get(first_id) if self.cursor else None

    def is_finished(self, file: SegmentFile) -> bool:
        """Whether it was done with when the cursor was saved, and its deletion did not come to pass."""
        return self.cursor is not None and file.first_id < self.cursor.next_id and file.first_id not in self.cursor.segments

    def vanished(self) -> Iterator[Known]:
        """Segments that the cursor knows and that are neither here nor set aside."""
        here = {file.first_id for file in self.files} | {set_aside_id(path.name) for path in self.bad}
        for known in self.cursor.segments.values() if self.cursor else ():
            if known.first_id not in here:
                yield known


def survey(disk: Disk, directory: Path) -> Survey:
    """Look at a directory.

    :raises OSError: it cannot be read.
    """
    files, bad = [], []
    for path in sorted(directory.iterdir()):
        if (name := parse_name(path.name)) is not None:
            files.append(segment_file(disk, path, *name))
        elif set_aside_id(path.name) is not None:
            bad.append(path)
    slots = read_slots(disk, directory)
    cursor = newest(slots)
    return Survey(files, bad, slots, cursor, _complete(files, cursor))


def segment_file(disk: Disk, path: Path, first_id: int, stamp: int) -> SegmentFile:
    """Look at a segment's header and size.

    :raises OSError: it cannot be read.
    """
    fd = disk.open(path)
    try:
        header = decode(disk.read(fd, HEADER_BYTES, 0))
    finally:
        disk.close(fd)
    if header is not None and header.first_id != first_id:
        header = None
    return SegmentFile(first_id, stamp, path, path.stat().st_size, header)


def _complete(files: list[SegmentFile], cursor: Cursor | None) -> dict[int, tuple[int, int]]:
    """All but the last one written to: its successor says so, or the cursor of a journal that was closed."""
    found = {}
    if cursor is not None:
        newest_id = max(cursor.segments, default=0)
        for known in cursor.segments.values():
            if cursor.clean or known.first_id != newest_id:
                found[known.first_id] = (known.records, known.size)
    for file in files:
        if file.header is not None and not file.is_foreign and file.header.previous_bytes:
            header = file.header
            found[header.previous_first_id] = (header.previous_records, header.previous_bytes)
    return found


@dataclass
class Scanned:
    """What is in a segment file that was read through."""

    records: int
    """As many as ids from the first to the last found."""
    size: int
    """Bytes up to the end of the last record."""
    torn: int = 0
    """Bytes behind that, up to the last that is not zero; zeros behind them were allotted, or left by a file system."""
    spoilt: list[tuple[Spoilt, int, int]] = field(default_factory=list)
    """Spans before that end, each with the ids missing there: first, and last (less than first if none are)."""


def scan_file(disk: Disk, file: SegmentFile, *, start_id: int | None = None, start: int = HEADER_BYTES) -> Scanned:
    """Read a segment through, checking every record.

    :raises OSError: other than an input/output error.
    """
    next_id = start_id or file.first_id
    fd = disk.open(file.path)
    try:
        span = Span(start, file.size, salt_of(file.first_id, file.stamp), next_id, next_id + file.size // HEAD_BYTES)
        result = Scanned(next_id - file.first_id, min(start, file.size))
        pending: list[Spoilt] = []
        for found in scan(partial(disk.read, fd), span):
            if isinstance(found, Run):
                result.spoilt += [(one, next_id, found.first_id - 1) for one in pending]
                pending = []
                next_id = found.last_id + 1
                result.records, result.size = next_id - file.first_id, found.end
            elif not found.is_tail:
                pending.append(found)
        result.torn = _torn(partial(disk.read, fd), result.size, file.size)
        return result
    finally:
        disk.close(fd)


def _torn(read: Reading, start: int, end: int) -> int:
    last = start
    for offset in range(start, end, WINDOW):
        try:
            data = read(min(WINDOW, end - offset), offset).rstrip(b"\0")
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            continue
        if data:
            last = offset + len(data)
    return last - start
