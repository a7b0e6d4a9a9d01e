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
from functools import partial
from pathlib import Path
from typing import Final

from leaderq.base import chance
from leaderq.errors import JournalFailed
from leaderq.producing.journal.cursor import Known, boot_id, read_cursor
from leaderq.producing.journal.disk import NO_SPACE, Disk, force
from leaderq.producing.journal.index import SegmentIndex, set_aside
from leaderq.producing.journal.policy import Damage, RecoveryReport
from leaderq.producing.journal.records import HEAD_BYTES, WINDOW, tolerant
from leaderq.producing.journal.segments import (
    HEADER_BYTES,
    VERSION,
    Segment,
    decode,
    parse_name,
    set_aside_id,
)

LEAP: Final = 1 << 20
"""How many ids are passed over when nobody knows any more which were assigned."""


class DirectoryScan:
    """The contents of a journal's directory.

    :raises JournalFailed: a later version of leaderq wrote a segment.
    :raises OSError: the file system failed.
    """

    def __init__(self, disk: Disk, directory: Path) -> None:
        self.disk = disk
        self.files: list[Segment] = []
        self.bad: list[Path] = []
        """Segments that were set aside."""
        for path in sorted(directory.iterdir()):
            if (name := parse_name(path.name)) is not None:
                with suppress(FileNotFoundError):  # deleted meanwhile, by who has the journal open
                    self.files.append(segment_of(disk, path, *name))
            elif set_aside_id(path.name) is not None:
                self.bad.append(path)
        cursor, self.bad_slots = read_cursor(disk, directory)
        """How many of the cursor's slots are missing, torn or damaged. The second slot of a journal
        that never saved twice holds zeros, and counts as well."""
        self.cursor, newest_id = cursor, max(cursor.segments, default=0)
        self._complete = {
            known.first_id: known.extent
            for known in cursor.segments.values()
            if cursor.clean or known.first_id != newest_id
        }
        """Records and bytes of each segment except the last one written to. A segment's successor
        tells them, or the cursor of a journal that was closed."""
        for one in self.files:
            if (header := one.header) is not None and header.previous_bytes:
                previous = header.previous_records, header.previous_bytes
                self._complete[header.previous_first_id] = previous
            if (known := cursor.segments.get(one.first_id)) is not None:
                one.marks, one.damaged = known.marks, known.damaged
        self.is_new = not self.files and not self.bad and not cursor.sequence
        self.is_cursor_lost = not cursor.sequence and not self.is_new

    def is_finished(self, one: Segment) -> bool:
        """Whether the segment was done with when the cursor was saved, and its deletion was
        interrupted.
        """
        cursor = self.cursor
        return one.first_id < cursor.next_id and one.first_id not in cursor.segments

    def missing(self) -> Iterator[Damage]:
        """Yield the losses in segments that the cursor knows, and that are neither here nor set
        aside.
        """
        here = {one.first_id for one in self.files} | {set_aside_id(path.name) for path in self.bad}
        for first_id, (records, size), marks, _ in self.cursor.segments.values():
            if first_id not in here and records > marks.count:
                lost = (first_id + marks.front, first_id + records - 1)
                yield Damage(f"{first_id:020d}-*.seg", "the file is gone", 0, size, lost)

    def examine(
        self,
        one: Segment,
        *,
        start: Known | None = None,
        thorough: bool = False,
        is_current: bool = False,
    ) -> tuple[int, bool]:
        """Find out the extent of a segment, unreadable records included, and its damages. Return
        how many bytes stand behind its last record, and whether these may be a torn tail: the file
        was read to its end, and nobody says that more records were there.

        The whole file is read if its number of records is not known, if it is shorter than it was,
        or if ``thorough``. Then every record is checked, from ``start`` on if that is given (what
        the cursor knows). ``is_current``: the segment is being written.

        :raises OSError: other than an input/output error.
        """
        name, known = one.path.name, self.cursor.segments.get(one.first_id)
        complete = self._complete.get(one.first_id)
        if one.header is None and not is_current:
            one.damages.append(Damage(name, "its header is spoilt", 0, HEADER_BYTES))
        if complete is not None and complete[1] <= one.file_bytes and not thorough:
            one.extent = complete
            return 0, False
        if start is not None and complete is None:
            one.extent = start.extent
        with one.scan(self.disk, one.file_bytes, after=one.extent) as all_found:
            for found in all_found:
                if isinstance(found, Damage):
                    one.damages.append(found)
                else:
                    one.extent = found.last_id + 1 - one.first_id, found.end
        torn = self._torn(one)
        promised = known.extent[0] if known is not None and not is_current else 0
        promised = max(promised, complete[0] if complete else 0)
        if promised <= one.records:
            return torn, True
        lost = (one.last_id + 1, one.first_id + promised - 1)
        one.damages.append(Damage(name, "its end is missing or spoilt", one.size, torn, lost))
        one.extent = promised, one.size
        return torn, False

    def _torn(self, one: Segment) -> int:
        """Return how many bytes stand behind the last record, up to the last that is not zero;
        zeros behind them were allotted, or left by a file system.
        """
        last = one.size
        with self.disk.opened(one.path) as fd:
            reading = tolerant(partial(self.disk.read, fd))
            for offset in range(last, one.file_bytes, WINDOW):
                if data := reading(min(WINDOW, one.file_bytes - offset), offset).rstrip(b"\0"):
                    last = offset + len(data)
        return last - one.size


class Recovery(DirectoryScan):
    """Repairs a directory, which must be locked, and then holds the state with which a journal
    begins. Raises as :class:`DirectoryScan`.
    """

    def __init__(self, disk: Disk, directory: Path) -> None:
        began = time.perf_counter()
        super().__init__(disk, directory)
        cursor = self.cursor
        self._is_same_boot = cursor.boot_id == boot_id() != bytes(16)
        self._segments: list[Segment] = []
        self._damages: list[Damage] = []
        self._next_id, self._torn_bytes = 1, 0
        for one in self.files:
            self._take_in(one)
        self._damages += self.missing()
        if not cursor.clean:
            # What a killed process wrote and did not force out may exist only in the system's
            # memory, although callers were told that it is stored.
            for one in self._segments:
                force(disk, one.path)
        self.index = SegmentIndex(
            disk,
            directory,
            self._segments,
            next_id=self._first_free_id(),
            stamp=self.files[-1].stamp if self.files else chance.token_bits(32),
            sequence=cursor.sequence,
            damages=self._damages,
        )
        self.report = RecoveryReport(
            was_clean=self.is_new or cursor.clean,
            cursor_lost=self.is_cursor_lost,
            torn_bytes=self._torn_bytes,
            damages=tuple(self._damages),
            took_s=time.perf_counter() - began,
        )

    def _take_in(self, one: Segment) -> None:
        known = self.cursor.segments.get(one.first_id)
        if self.is_finished(one):
            return self.disk.remove(one.path)
        if one.header is None and one.file_bytes < HEADER_BYTES and known is None:
            # Its creation was interrupted, so no record was ever in it.
            self._torn_bytes += one.file_bytes
            return self.disk.remove(one.path)
        # All written bytes still exist, unless the host has crashed since the last save.
        is_sound = known and known.extent[1] <= one.file_bytes and self._is_same_boot
        torn, is_open_ended = self.examine(one, start=known if is_sound else None)
        one.sealed = True
        for damage in one.damages:
            self._hurt(one, damage)
        self._next_id = max(self._next_id, one.last_id + 1 + torn // HEAD_BYTES)
        if is_open_ended and one.file_bytes > one.size and not one.damaged:
            self._cut(one, torn)
        one.marks.clip(one.records)
        if one.records:
            return self._segments.append(one)
        if one.damaged:
            set_aside(self.disk, one.path)
            return None
        return self.disk.remove(one.path)

    def _cut(self, one: Segment, torn: int) -> None:
        """Cut off a torn tail. If the tail may be a whole record with a wrong checksum, which a
        killed process never leaves, the file counts as damaged and is kept as it is.
        """
        self._torn_bytes += torn
        with self.disk.opened(one.path, writable=True) as fd:
            if size := self._whole_bytes(fd, one, torn):
                reason, size = "behind its last whole record", max(size, torn)
                self._hurt(one, Damage(one.path.name, reason, one.size, size))
                return
            try:
                self.disk.truncate(fd, one.size)
            except OSError as error:
                if error.errno not in NO_SPACE:
                    raise

    def _whole_bytes(self, fd: int, one: Segment, torn: int) -> int:
        """Return the size of the record behind the last one if it may have been written as a whole;
        0 if not, because it would end after the end of the file, or ends in the zeros of a torn
        write.
        """
        start = one.size
        size = HEAD_BYTES + int.from_bytes(self.disk.read(fd, 4, start), "little")
        if torn < HEAD_BYTES or size > one.file_bytes - start:
            return 0
        return size if self.disk.read(fd, 16, start + size - 16).strip(b"\0") else 0

    def _hurt(self, one: Segment, damage: Damage) -> None:
        one.damaged = True
        self._damages.append(damage)
        if damage.lost_ids:
            one.mark(*damage.lost_ids)

    def _first_free_id(self) -> int:
        """Return the least id that was certainly never assigned, according to the segments, the
        cursor and the files set aside.
        """
        cursor = self.cursor
        bounds = [self._next_id, cursor.next_id]
        if not cursor.clean and not self._is_same_boot:
            bounds.append(cursor.reserved)
        if self.is_cursor_lost:
            sizes = [(set_aside_id(path.name), path.stat().st_size) for path in self.bad]
            bad = [(first_id or 0) + size // HEAD_BYTES for first_id, size in sizes]
            bounds.append(max([self._next_id, *bad]) + LEAP)
        return max(bounds)


def segment_of(disk: Disk, path: Path, first_id: int, stamp: int) -> Segment:
    with disk.opened(path) as fd:
        header = decode(disk.read(fd, HEADER_BYTES, 0))
    if header is not None and header.version > VERSION:
        raise JournalFailed(
            f"segment {path.name!r} has version {header.version}, and this leaderq knows {VERSION}:"
            " a later one wrote it. Open the journal with that one, or have it send what is there"
            " first; nothing was changed"
        )
    if header is not None and header.first_id != first_id:
        header = None
    return Segment(path, first_id, stamp, header, path.stat().st_size)
