"""Opening a directory that a journal may have left in any state.

Nothing is trusted, nothing is deleted but what was done with or was never accepted, and nothing keeps what follows it from
being read. Each file that is not as it should be ends in exactly one of these:

=================================================  ========================================================================
found                                              done
=================================================  ========================================================================
last segment ends within a record (torn tail)      cut behind the last whole record; its bytes are kept as ``*.tail.bad``
                                                   if they could be a whole record spoilt later
spoilt bytes with whole records behind them        these are read; the ids between are reported lost; the file becomes
                                                   ``*.bad`` when the rest is done with
complete segment shorter than it was               the same
header spoilt                                      the same; the name says the first id
header of a later version                          ``*.bad`` at once
segment cut off within its header when made        removed: no record was ever in it
segment the cursor has, gone                       reported
segment done with, whose deletion was interrupted  deleted
one cursor slot spoilt                             the other is used: up to one save older, so some acknowledged records
                                                   may come again
both cursor slots spoilt                           all segments are read through, and all that is in them comes again
=================================================  ========================================================================

Memory: half a mebibyte, or the largest record. Time: complete segments are not read, but for their headers; of the last,
what was written since the cursor was saved. What is spoilt in complete segments is found when they are read.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leaderq.producing.journal.cursor import Known
from leaderq.producing.journal.disk import Disk, write_all
from leaderq.producing.journal.keeper import boot_id, set_aside
from leaderq.producing.journal.marks import Marks
from leaderq.producing.journal.record import HEAD_BYTES
from leaderq.producing.journal.report import Damage
from leaderq.producing.journal.scanning import WINDOW
from leaderq.producing.journal.segment import Segment
from leaderq.producing.journal.segment_header import BAD, HEADER_BYTES, set_aside_id
from leaderq.producing.journal.survey import SegmentFile, Survey, scan_file

LEAP: Final = 1 << 20
"""How many ids are passed over when nobody knows any more which were given out."""


@dataclass
class Recovery:
    """The state of a directory, as it is put right step by step."""

    disk: Disk
    directory: Path
    found: Survey
    segments: list[Segment] = field(default_factory=list)
    damages: list[Damage] = field(default_factory=list)
    next_id: int = 1
    torn_bytes: int = 0
    scanned_bytes: int = 0

    def run(self) -> None:
        """Put everything right.

        :raises OSError: the file system would not.
        """
        for file in self.found.files:
            self._take_in(file)
        for known in self.found.vanished():
            self._miss(known)
        self.next_id = max(self.next_id, self._first_free_id())
        self.disk.sync_directory(self.directory)

    def _take_in(self, file: SegmentFile) -> None:
        known = self.found.known(file.first_id)
        if file.is_foreign:
            return self._refuse(file)
        if self.found.is_finished(file):
            return self.disk.remove(file.path)
        if file.is_stub and known is None:
            self.torn_bytes += file.size
            return self.disk.remove(file.path)
        segment = Segment(self.directory, file.first_id, file.stamp, sealed=True, marks=known.marks if known else Marks())
        segment.damaged = known is not None and known.damaged
        if file.header is None:
            segment.damaged = True
            self.damages.append(Damage(file.path.name, "its header is spoilt", 0, HEADER_BYTES))
        complete = self.found.complete.get(file.first_id)
        if complete is not None and complete[1] <= file.size:
            segment.records, segment.size = complete
        else:
            self._read_through(segment, file, known, complete)
        return self._keep(segment)

    def _refuse(self, file: SegmentFile) -> None:
        version = file.header.version if file.header else 0
        reason = f"its version is {version}, which this leaderq does not know; a later one wrote it"
        records, _ = self.found.complete.get(file.first_id, (0, 0))
        lost = (file.first_id, file.first_id + records - 1) if records else None
        self.damages.append(Damage(file.path.name, reason, 0, file.size, lost))
        self.next_id = max(self.next_id, file.first_id + (records or file.size // HEAD_BYTES + 1))
        set_aside(self.disk, file.path)

    def _read_through(
        self, segment: Segment, file: SegmentFile, known: Known | None, complete: tuple[int, int] | None
    ) -> None:
        start_id, start = file.first_id, HEADER_BYTES
        if known is not None and complete is None and known.size <= file.size and self._same_boot():
            start_id, start = file.first_id + known.records, known.size
        scanned = scan_file(self.disk, file, start_id=start_id, start=start)
        self.scanned_bytes += max(0, scanned.size + scanned.torn - start)
        segment.records, segment.size = scanned.records, max(HEADER_BYTES, scanned.size)
        for spoilt, first, last in scanned.spoilt:
            self._hurt(
                segment, Damage(file.path.name, "spoilt", spoilt.start, spoilt.end - spoilt.start, _lost(first, last))
            )
        tail = scanned.torn
        self.next_id = max(self.next_id, segment.last_id + 1 + tail // HEAD_BYTES)
        promised = max(known.records if known else 0, complete[0] if complete else 0)
        if promised > scanned.records:
            lost = (file.first_id + scanned.records, file.first_id + promised - 1)
            segment.records = promised
            self._hurt(segment, Damage(file.path.name, "its end is missing or spoilt", scanned.size, tail, lost))
        elif file.size > scanned.size and not segment.damaged:
            segment.damaged = not self._cut(file, scanned.size, tail)

    def _cut(self, file: SegmentFile, end: int, torn: int) -> bool:
        """Cut a torn tail off; a killed process never leaves a whole record that does not check, so such a one is kept.

        Gives ``False`` if there is no room to keep it: then the whole file is.
        """
        self.torn_bytes += torn
        fd = self.disk.open(file.path, writable=True)
        try:
            if torn and self._was_whole(fd, end, torn):
                self._keep_tail(file, fd, end, end + torn)
            self.disk.truncate(fd, end)
            self.disk.sync(fd)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            return False
        finally:
            self.disk.close(fd)
        return True

    def _was_whole(self, fd: int, start: int, torn: int) -> bool:
        """Whether this may have been a whole record: it ends neither within its length nor in zeros of a broken write."""
        head = self.disk.read(fd, HEAD_BYTES, start)
        if torn < HEAD_BYTES:
            return False
        size = HEAD_BYTES + int.from_bytes(head[:4], "little")
        return size <= torn and bool(self.disk.read(fd, 16, start + size - 16).strip(b"\0"))

    def _keep_tail(self, file: SegmentFile, fd: int, start: int, end: int) -> None:
        target, number = file.path.with_name(f"{file.path.name}.tail{BAD}"), 1
        while target.exists():
            target, number = file.path.with_name(f"{file.path.name}.tail.{number}{BAD}"), number + 1
        copy = self.disk.create(target)
        try:
            for offset in range(start, end, WINDOW):
                write_all(self.disk, copy, self.disk.read(fd, min(WINDOW, end - offset), offset), offset - start)
            self.disk.sync(copy)
        finally:
            self.disk.close(copy)
        reason = f"behind its last whole record; kept as {target.name}"
        self.damages.append(Damage(file.path.name, reason, start, end - start))

    def _keep(self, segment: Segment) -> None:
        """What holds no record goes: deleted, or set aside if damaged."""
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
            for number in range(damage.lost_ids[0], damage.lost_ids[1] + 1):
                segment.marks.add(number - segment.first_id)

    def _miss(self, known: Known) -> None:
        self.next_id = max(self.next_id, known.first_id + known.records)
        if known.records > known.marks.count:
            lost = (known.first_id + known.marks.front, known.first_id + known.records - 1)
            self.damages.append(Damage(f"{known.first_id:020d}-*.seg", "the file is gone", 0, known.size, lost))

    def _first_free_id(self) -> int:
        """The least id that was certainly never given out, as far as cursor and set-aside files tell."""
        bounds = [self.next_id]
        cursor = self.found.cursor
        if cursor is not None:
            bounds.append(cursor.next_id)
            if not cursor.clean and not self._same_boot():
                bounds.append(cursor.reserved)
        elif not self.found.is_new:
            bad = [(set_aside_id(path.name) or 0) + path.stat().st_size // HEAD_BYTES for path in self.found.bad]
            bounds.append(max([self.next_id, *bad]) + LEAP)
        return max(bounds)

    def _same_boot(self) -> bool:
        """Whether whatever was written is still there: the host has not crashed since the cursor was saved."""
        cursor = self.found.cursor
        return cursor is not None and cursor.boot_id == boot_id() != bytes(16)


def _lost(first: int, last: int) -> tuple[int, int] | None:
    return (first, last) if last >= first else None
