"""Looks at a journal's directory without changing anything, and opens one in any state.

Nothing is trusted. Only what was done with or was never accepted is deleted, and nothing keeps
later records from being read. ``docs/design/journal.md`` says, in one row each, what is done with
files that are not as they should be.

Memory: half a mebibyte, or the largest record. Time: of complete segments only the headers are
read; of the last segment, what was written since the cursor was saved. Damage in complete segments
is found when they are read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from leaderq.errors import JournalFailed
from leaderq.producing.journal.cursor import (
    CursorState,
    Known,
    boot_id,
    newest,
    read_slots,
    set_aside,
)
from leaderq.producing.journal.disk import NO_SPACE, Disk, force
from leaderq.producing.journal.policy import Damage, RecoveryReport
from leaderq.producing.journal.records import (
    HEAD_BYTES,
    WINDOW,
    Reading,
    Run,
    ScanRange,
    salt_of,
    scan,
    tolerant,
)
from leaderq.producing.journal.segments import (
    HEADER_BYTES,
    VERSION,
    AckBitmap,
    Segment,
    SegmentHeader,
    SegmentIndex,
    decode,
    parse_name,
    set_aside_id,
)

LEAP: Final = 1 << 20
"""How many ids are passed over when nobody knows any more which were assigned."""


class Recovery:
    """Repairs a directory, which must be locked, and then holds the state with which a journal
    begins. ``previous``: what the first segment's header says of the segment before it.

    :raises JournalFailed: a later version of leaderq wrote a segment.
    :raises OSError: the file system failed.
    """

    def __init__(self, disk: Disk, directory: Path) -> None:
        began = time.perf_counter()
        self.disk, self.directory = disk, directory
        self.found = found = scan_directory(disk, directory)
        self.segments: list[Segment] = []
        self.damages: list[Damage] = []
        self.next_id, self.torn_bytes, self.scanned_bytes = 1, 0, 0
        self._run()
        self.index = SegmentIndex(self.segments, self.next_id)
        self.stamp = found.stamp
        self.sequence = max((slot.sequence for slot in found.slots if slot), default=0)
        self.previous = (0, 0, 0)
        if self.segments:
            last = self.segments[-1]
            self.previous = (last.first_id, last.records, last.size)
        self.report = RecoveryReport(
            segments=len(self.segments),
            records=self.index.depth,
            bytes_used=self.index.bytes_used,
            was_clean=found.is_new or (found.cursor is not None and found.cursor.clean),
            cursor_slots_bad=0 if found.is_new else found.bad_slots,
            cursor_lost=not found.is_new and found.cursor is None,
            torn_bytes=self.torn_bytes,
            damages=tuple(self.damages),
            scanned_bytes=self.scanned_bytes,
            took_s=time.perf_counter() - began,
        )

    def _run(self) -> None:
        for file in self.found.files:
            self._take_in(file)
        self.damages += self.found.missing()
        self.next_id = max(self.next_id, self._first_free_id())
        self._force_out()

    def _force_out(self) -> None:
        """Force all segments to the disk, unless the journal was closed. Records that a killed
        process wrote and did not force out may exist only in the system's memory, although callers
        were told that they are stored.
        """
        if self.found.cursor is not None and self.found.cursor.clean:
            return
        for segment in self.segments:
            force(self.disk, segment.path)

    def _take_in(self, file: SegmentFile) -> None:
        known = self.found.known(file.first_id)
        if self.found.is_finished(file):
            return self.disk.remove(file.path)
        if file.is_stub and known is None:
            self.torn_bytes += file.size
            return self.disk.remove(file.path)
        marks = known.marks if known else AckBitmap()
        segment = Segment(self.directory, file.first_id, file.stamp, sealed=True, marks=marks)
        segment.damaged = known is not None and known.damaged
        start = None
        if known is not None and known.size <= file.size and self._same_boot():
            start = known
        held = holding(self.disk, self.found, file, start=start)
        self.scanned_bytes += held.scanned_bytes
        segment.extent = (held.records, held.size)
        segment.codec = 0 if file.header is None else file.header.codec
        for damage in held.damages:
            self._hurt(segment, damage)
        self.next_id = max(self.next_id, segment.last_id + 1 + held.torn // HEAD_BYTES)
        if held.is_open_ended and file.size > held.size and not segment.damaged:
            self._cut(segment, file, held)
        return self._keep(segment)

    def _cut(self, segment: Segment, file: SegmentFile, held: SegmentContent) -> None:
        """Cut off a torn tail. If the tail may be a whole record with a wrong checksum, which a
        killed process never leaves, the file counts as damaged and is kept as it is.
        """
        self.torn_bytes += held.torn
        fd = self.disk.open(file.path, writable=True)
        try:
            if size := self._whole_bytes(fd, held.size, held.torn, file.size - held.size):
                reason, size = "behind its last whole record", max(size, held.torn)
                self._hurt(segment, Damage(file.path.name, reason, held.size, size))
            else:
                self.disk.truncate(fd, held.size)
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
        finally:
            self.disk.close(fd)

    def _whole_bytes(self, fd: int, start: int, torn: int, left: int) -> int:
        """Return the size of the record at ``start`` if it may have been written as a whole; 0 if
        not, because it would end after the end of the file, or ends in the zeros of a torn write.
        """
        head = self.disk.read(fd, HEAD_BYTES, start)
        size = HEAD_BYTES + int.from_bytes(head[:4], "little")
        if torn < HEAD_BYTES or size > left:
            return 0
        return size if self.disk.read(fd, 16, start + size - 16).strip(b"\0") else 0

    def _keep(self, segment: Segment) -> None:
        """Keep a segment that has records. A file without records is deleted, or set aside if it is
        damaged.
        """
        self.next_id = max(self.next_id, segment.last_id + 1)
        segment.marks.clip(segment.records)
        if segment.records:
            self.segments.append(segment)
        elif segment.damaged:
            set_aside(self.disk, segment.path)
        else:
            self.disk.remove(segment.path)

    def _hurt(self, segment: Segment, damage: Damage) -> None:
        segment.damaged = True
        self.damages.append(damage)
        if damage.lost_ids:
            segment.mark(*damage.lost_ids)

    def _first_free_id(self) -> int:
        """Return the least id that was certainly never assigned, according to the cursor and the
        files set aside.
        """
        bounds = [self.next_id]
        cursor = self.found.cursor
        if cursor is not None:
            bounds.append(cursor.next_id)
            if not cursor.clean and not self._same_boot():
                bounds.append(cursor.reserved)
        elif not self.found.is_new:
            sizes = [(set_aside_id(path.name), path.stat().st_size) for path in self.found.bad]
            bad = [(first_id or 0) + size // HEAD_BYTES for first_id, size in sizes]
            bounds.append(max([self.next_id, *bad]) + LEAP)
        return max(bounds)

    def _same_boot(self) -> bool:
        """Whether all written bytes still exist, because the host has not crashed since the last
        save.
        """
        cursor = self.found.cursor
        return cursor is not None and cursor.boot_id == boot_id() != bytes(16)


@dataclass(frozen=True)
class SegmentFile:
    """A segment's file as it is on the disk; ``header`` is ``None`` if it is torn or damaged."""

    first_id: int
    stamp: int
    path: Path
    size: int
    header: SegmentHeader | None

    @property
    def is_stub(self) -> bool:
        """Whether the file's creation was interrupted, so that no record was ever in it."""
        return self.header is None and self.size < HEADER_BYTES


@dataclass(frozen=True)
class DirectoryScan:
    """The contents of a journal's directory. ``complete``: segments whose number of records and
    bytes are known without reading them.
    """

    files: list[SegmentFile]
    bad: list[Path]
    slots: list[CursorState | None]
    cursor: CursorState | None
    complete: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def stamp(self) -> int | None:
        return self.files[-1].stamp if self.files else None

    @property
    def bad_slots(self) -> int:
        """How many of the cursor's slots are torn or damaged. The second slot of a journal that
        never saved twice holds zeros, and is not counted.
        """
        return sum(slot is None for slot in self.slots)

    @property
    def is_new(self) -> bool:
        return not self.files and not self.bad and all(slot is None for slot in self.slots)

    def known(self, first_id: int) -> Known | None:
        return self.cursor.segments.get(first_id) if self.cursor else None

    def is_finished(self, file: SegmentFile) -> bool:
        """Whether the segment was done with when the cursor was saved, and its deletion was
        interrupted.
        """
        return (
            self.cursor is not None
            and file.first_id < self.cursor.next_id
            and file.first_id not in self.cursor.segments
        )

    def missing(self) -> Iterator[Damage]:
        """Yield the losses in segments that the cursor knows, and that are neither here nor set
        aside.
        """
        here = {file.first_id for file in self.files} | {
            set_aside_id(path.name) for path in self.bad
        }
        for known in self.cursor.segments.values() if self.cursor else ():
            if known.first_id not in here and known.records > known.marks.count:
                lost = (known.first_id + known.marks.front, known.first_id + known.records - 1)
                name = f"{known.first_id:020d}-*.seg"
                yield Damage(name, "the file is gone", 0, known.size, lost)


def scan_directory(disk: Disk, directory: Path) -> DirectoryScan:
    """Return the contents of a journal's directory.

    :raises JournalFailed: a later version of leaderq wrote a segment.
    """
    files, bad = [], []
    for path in sorted(directory.iterdir()):
        if (name := parse_name(path.name)) is not None:
            with suppress(FileNotFoundError):  # deleted meanwhile, by who has the journal open
                files.append(segment_file(disk, path, *name))
        elif set_aside_id(path.name) is not None:
            bad.append(path)
    slots = read_slots(disk, directory)
    cursor = newest(slots)
    return DirectoryScan(files, bad, slots, cursor, _complete(files, cursor))


def segment_file(disk: Disk, path: Path, first_id: int, stamp: int) -> SegmentFile:
    fd = disk.open(path)
    try:
        header = decode(disk.read(fd, HEADER_BYTES, 0))
    finally:
        disk.close(fd)
    if header is not None and header.version > VERSION:
        raise JournalFailed(
            f"segment {path.name!r} has version {header.version}, and this leaderq knows {VERSION}:"
            " a later one wrote it. Open the journal with that one, or have it send what is there"
            " first; nothing was changed"
        )
    if header is not None and header.first_id != first_id:
        header = None
    return SegmentFile(first_id, stamp, path, path.stat().st_size, header)


def _complete(files: list[SegmentFile], cursor: CursorState | None) -> dict[int, tuple[int, int]]:
    """Return records and bytes of each segment except the last one written to. A segment's
    successor tells them, or the cursor of a journal that was closed.
    """
    found = {}
    if cursor is not None:
        newest_id = max(cursor.segments, default=0)
        for known in cursor.segments.values():
            if cursor.clean or known.first_id != newest_id:
                found[known.first_id] = (known.records, known.size)
    for file in files:
        if (header := file.header) is not None and header.previous_bytes:
            found[header.previous_first_id] = (header.previous_records, header.previous_bytes)
    return found


@dataclass
class SegmentContent:
    """The contents of a segment file, as far as its successor, the cursor or a reading tell."""

    records: int
    """The number of ids from the first to the last, unreadable records included."""
    size: int
    """Bytes up to the end of the last record."""
    torn: int = 0
    """Bytes behind that, up to the last that is not zero; zeros behind them were allotted, or left
    by a file system."""
    damages: list[Damage] = field(default_factory=list)
    scanned_bytes: int = 0
    is_open_ended: bool = False
    """Whether it was read to its end, and nobody says that more records were there."""


def holding(
    disk: Disk,
    found: DirectoryScan,
    file: SegmentFile,
    *,
    start: Known | None = None,
    thorough: bool = False,
    is_current: bool = False,
) -> SegmentContent:
    """Return the contents of a segment.

    The whole file is read if its number of records is not known, if it is shorter than it was, or
    if ``thorough``. Then every record is checked, from ``start`` on if that is given (what the
    cursor knows). ``is_current``: the segment is being written.

    :raises OSError: other than an input/output error.
    """
    name, known, complete = (
        file.path.name,
        found.known(file.first_id),
        found.complete.get(file.first_id),
    )
    damages: list[Damage] = []
    if file.header is None and not is_current:
        damages.append(Damage(name, "its header is spoilt", 0, HEADER_BYTES))
    if complete is not None and complete[1] <= file.size and not thorough:
        return SegmentContent(*complete, damages=damages)
    if complete is not None:
        start = None
    content = _read_through(disk, file, start)
    content.damages[:0] = damages
    promised = known.records if known is not None and not is_current else 0
    promised = max(promised, complete[0] if complete else 0)
    if promised > content.records:
        lost = (file.first_id + content.records, file.first_id + promised - 1)
        reason, size = "its end is missing or spoilt", content.torn
        content.damages.append(Damage(name, reason, content.size, size, lost))
        content.records = promised
    else:
        content.is_open_ended = True
    return content


def _read_through(disk: Disk, file: SegmentFile, start: Known | None) -> SegmentContent:
    first_id, at = file.first_id, HEADER_BYTES
    next_id = first_id
    if start is not None:
        next_id, at = first_id + start.records, start.size
    last_id = next_id + file.size // HEAD_BYTES
    span = ScanRange(at, file.size, salt_of(first_id, file.stamp), next_id, last_id)
    content = SegmentContent(next_id - first_id, max(HEADER_BYTES, min(at, file.size)))
    fd = disk.open(file.path)
    try:
        for found in scan(partial(disk.read, fd), span):
            if isinstance(found, Run):
                content.records, content.size = found.last_id + 1 - first_id, found.end
            elif not found.is_tail:
                content.damages.append(found.damage(file.path.name))
        content.torn = _torn(partial(disk.read, fd), content.size, file.size)
    finally:
        disk.close(fd)
    content.scanned_bytes = max(0, content.size + content.torn - at)
    return content


def _torn(read: Reading, start: int, end: int) -> int:
    last, reading = start, tolerant(read)
    for offset in range(start, end, WINDOW):
        if data := reading(min(WINDOW, end - offset), offset).rstrip(b"\0"):
            last = offset + len(data)
    return last - start
