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

from leaderq.base import chance
from leaderq.errors import JournalFailed
from leaderq.producing.journal.cursor import CursorState, Known, boot_id, read_cursor, set_aside
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
    begins.

    :raises JournalFailed: a later version of leaderq wrote a segment.
    :raises OSError: the file system failed.
    """

    def __init__(self, disk: Disk, directory: Path) -> None:
        began = time.perf_counter()
        self.disk, self.directory = disk, directory
        self.found = found = DirectoryScan.of(disk, directory)
        self.sequence = found.cursor.sequence
        self.stamp = found.files[-1].stamp if found.files else chance.token_bits(32)
        self._is_same_boot = found.cursor.boot_id == boot_id() != bytes(16)
        self.segments: list[Segment] = []
        self.damages: list[Damage] = []
        self.next_id, self.torn_bytes = 1, 0
        for file in found.files:
            self._take_in(file)
        self.damages += found.missing()
        if not found.cursor.clean:
            # What a killed process wrote and did not force out may exist only in the system's
            # memory, although callers were told that it is stored.
            for segment in self.segments:
                force(disk, segment.path)
        self.index = SegmentIndex(self.segments, self._first_free_id())
        self.report = RecoveryReport(
            segments=len(self.segments),
            records=self.index.depth,
            bytes_used=self.index.bytes_used,
            was_clean=found.is_new or found.cursor.clean,
            cursor_slots_bad=0 if found.is_new else found.bad_slots,
            cursor_lost=found.is_cursor_lost,
            torn_bytes=self.torn_bytes,
            damages=tuple(self.damages),
            took_s=time.perf_counter() - began,
        )

    def _take_in(self, file: SegmentFile) -> None:
        known = self.found.known(file.first_id)
        if self.found.is_finished(file):
            return self.disk.remove(file.path)
        if file.header is None and file.size < HEADER_BYTES and known is None:
            # Its creation was interrupted, so no record was ever in it.
            self.torn_bytes += file.size
            return self.disk.remove(file.path)
        marks = known.marks if known else AckBitmap()
        segment = Segment(self.directory, file.first_id, file.stamp, sealed=True, marks=marks)
        segment.damaged = known is not None and known.damaged
        # All written bytes still exist, unless the host has crashed since the last save.
        is_sound = known is not None and known.size <= file.size and self._is_same_boot
        held = self.found.content(file, start=known if is_sound else None)
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
        """Return the least id that was certainly never assigned, according to the segments, the
        cursor and the files set aside.
        """
        cursor = self.found.cursor
        bounds = [self.next_id, cursor.next_id]
        if not cursor.clean and not self._is_same_boot:
            bounds.append(cursor.reserved)
        if self.found.is_cursor_lost:
            sizes = [(set_aside_id(path.name), path.stat().st_size) for path in self.found.bad]
            bad = [(first_id or 0) + size // HEAD_BYTES for first_id, size in sizes]
            bounds.append(max([self.next_id, *bad]) + LEAP)
        return max(bounds)


@dataclass(frozen=True)
class SegmentFile:
    """A segment's file as it is on the disk; ``header`` is ``None`` if it is torn or damaged."""

    first_id: int
    stamp: int
    path: Path
    size: int
    header: SegmentHeader | None


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
    is_open_ended: bool = False
    """Whether it was read to its end, and nobody says that more records were there."""


@dataclass(frozen=True)
class DirectoryScan:
    """The contents of a journal's directory."""

    disk: Disk
    files: list[SegmentFile]
    bad: list[Path]
    """Segments that were set aside."""
    cursor: CursorState
    bad_slots: int
    """How many of the cursor's slots are torn or damaged. The second slot of a journal that never
    saved twice holds zeros, and counts as well."""
    complete: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Records and bytes of each segment except the last one written to. A segment's successor tells
    them, or the cursor of a journal that was closed."""

    @classmethod
    def of(cls, disk: Disk, directory: Path) -> DirectoryScan:
        """Look into a directory.

        :raises JournalFailed: a later version of leaderq wrote a segment.
        """
        files, bad = [], []
        for path in sorted(directory.iterdir()):
            if (name := parse_name(path.name)) is not None:
                with suppress(FileNotFoundError):  # deleted meanwhile, by who has the journal open
                    files.append(segment_file(disk, path, *name))
            elif set_aside_id(path.name) is not None:
                bad.append(path)
        cursor, bad_slots = read_cursor(disk, directory)
        newest_id = max(cursor.segments, default=0)
        complete = {
            known.first_id: (known.records, known.size)
            for known in cursor.segments.values()
            if cursor.clean or known.first_id != newest_id
        }
        for file in files:
            if (header := file.header) is not None and header.previous_bytes:
                complete[header.previous_first_id] = header.previous_records, header.previous_bytes
        return cls(disk, files, bad, cursor, bad_slots, complete)

    @property
    def is_new(self) -> bool:
        return not self.files and not self.bad and not self.cursor.sequence

    @property
    def is_cursor_lost(self) -> bool:
        return not self.cursor.sequence and not self.is_new

    def known(self, first_id: int) -> Known | None:
        return self.cursor.segments.get(first_id)

    def is_finished(self, file: SegmentFile) -> bool:
        """Whether the segment was done with when the cursor was saved, and its deletion was
        interrupted.
        """
        cursor = self.cursor
        return file.first_id < cursor.next_id and file.first_id not in cursor.segments

    def missing(self) -> Iterator[Damage]:
        """Yield the losses in segments that the cursor knows, and that are neither here nor set
        aside.
        """
        here = {file.first_id for file in self.files} | {
            set_aside_id(path.name) for path in self.bad
        }
        for known in self.cursor.segments.values():
            if known.first_id not in here and known.records > known.marks.count:
                lost = (known.first_id + known.marks.front, known.first_id + known.records - 1)
                name = f"{known.first_id:020d}-*.seg"
                yield Damage(name, "the file is gone", 0, known.size, lost)

    def content(
        self,
        file: SegmentFile,
        *,
        start: Known | None = None,
        thorough: bool = False,
        is_current: bool = False,
    ) -> SegmentContent:
        """Return the contents of a segment.

        The whole file is read if its number of records is not known, if it is shorter than it was,
        or if ``thorough``. Then every record is checked, from ``start`` on if that is given (what
        the cursor knows). ``is_current``: the segment is being written.

        :raises OSError: other than an input/output error.
        """
        name, known = file.path.name, self.known(file.first_id)
        complete = self.complete.get(file.first_id)
        damages: list[Damage] = []
        if file.header is None and not is_current:
            damages.append(Damage(name, "its header is spoilt", 0, HEADER_BYTES))
        if complete is not None and complete[1] <= file.size and not thorough:
            return SegmentContent(*complete, damages=damages)
        content = self._read_through(file, start if complete is None else None)
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

    def _read_through(self, file: SegmentFile, start: Known | None) -> SegmentContent:
        first_id, at = file.first_id, HEADER_BYTES
        next_id = first_id
        if start is not None:
            next_id, at = first_id + start.records, start.size
        last_id = next_id + file.size // HEAD_BYTES
        span = ScanRange(at, file.size, salt_of(first_id, file.stamp), next_id, last_id)
        content = SegmentContent(next_id - first_id, max(HEADER_BYTES, min(at, file.size)))
        fd = self.disk.open(file.path)
        reading = partial(self.disk.read, fd)
        try:
            for found in scan(reading, span):
                if isinstance(found, Run):
                    content.records, content.size = found.last_id + 1 - first_id, found.end
                elif not found.is_tail:
                    content.damages.append(found.damage(file.path.name))
            content.torn = _torn(reading, content.size, file.size)
        finally:
            self.disk.close(fd)
        return content


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


def _torn(read: Reading, start: int, end: int) -> int:
    last, reading = start, tolerant(read)
    for offset in range(start, end, WINDOW):
        if data := reading(min(WINDOW, end - offset), offset).rstrip(b"\0"):
            last = offset + len(data)
    return last - start
