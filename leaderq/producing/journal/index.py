"""The segments of an open journal: what is in them, and which records are done with. Saves the
latter, and deletes segments that are done with.

Order: first a damaged segment is renamed; then the cursor is saved without this segment and without
the segments to delete; then these are deleted. So after a crash no acknowledged record comes back,
and a file that is missing was not deleted by leaderq.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Final

from leaderq.producing.journal.cursor import NAMES, body_of, boot_id, encode
from leaderq.producing.journal.disk import NO_SPACE, Disk, write_all
from leaderq.producing.journal.policy import JournalCounters
from leaderq.producing.journal.segments import BAD, Segment
from leaderq.threads import primitives

log = logging.getLogger("leaderq.producing.journal")
_ALLOTTED: Final = 64 * 1024


class SegmentIndex:
    """See the module. Guarded by :attr:`gate`, except the files."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        segments: list[Segment],
        *,
        next_id: int,
        stamp: int,
        sequence: int,
    ) -> None:
        self.disk, self.directory, self.stamp = disk, directory, stamp
        # Reentrant only so that a call which interrupts its own thread can be refused.
        self.gate = primitives.RLock()
        """Guards the segments, and the records that wait for the disk."""
        self.counters = JournalCounters()
        self.segments = segments
        self.floor = next_id
        """No record with a lower id will be written: it was given before, or is not needed."""
        self.reserved = 0
        """The last id that may have been assigned, according to the cursor."""
        self._saving, self._boot_id = primitives.Lock(), boot_id()
        self._sequence, self._saved = sequence, b""
        for name in NAMES:
            disk.close(self._slot(name))
        # Also renames and deletions of the recovery, before anything is deleted that relies on
        # them.
        disk.sync_directory(directory)

    @property
    def next_id(self) -> int:
        """The id of the next record to be written."""
        if not self.segments:
            return self.floor
        last = self.segments[-1]
        end = last.first_id + last.extent[0]
        return end if end > self.floor else self.floor

    @property
    def bytes_used(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def depth(self) -> int:
        return sum(segment.open_records for segment in self.segments)

    def depth_behind(self, record_id: int) -> int:
        """How many records with higher ids are not done with."""
        found = 0
        for segment in self.segments[self._at(record_id) :]:
            first = max(0, record_id + 1 - segment.first_id)
            if first < segment.records:
                found += segment.records - first - segment.marks.count_from(first)
        return found

    def mark(self, numbers: Iterable[int]) -> tuple[int, list[Segment]]:
        """Mark these stored records as done with; return how many were not marked before, and the
        segments that have them.
        """
        newly, touched = 0, list[Segment]()
        first_id, last_id = 0, -1  # of the segment found last
        for number in numbers:
            if not first_id <= number <= last_id:
                segment = self.segments[self._at(number)] if self.segments else None
                if segment is None or not segment.first_id <= number <= segment.last_id:
                    continue
                first_id, last_id = segment.first_id, segment.last_id
                touched.append(segment)
            newly += touched[-1].marks.add(number - first_id)
        return newly, touched

    def _at(self, record_id: int) -> int:
        return max(0, bisect_right(self.segments, record_id, key=attrgetter("first_id")) - 1)

    def from_id(self, record_id: int) -> Segment | None:
        """Return the first segment with this id or a later one that has a record not done with."""
        for segment in self.segments[self._at(record_id) :]:
            if segment.last_id >= record_id and segment.open_records:
                return segment
        return None

    def replace(self, old: Segment | None, new: Segment | None) -> None:
        """Remove ``old``, or add ``new`` at the end."""
        with self.gate:
            kept = [segment for segment in self.segments if segment is not old]
            self.floor = max(self.floor, self.next_id)
            self.segments = kept if new is None else [*kept, new]

    # -- files -------------------------------------------------------------------------------------

    def _slot(self, name: str) -> int:
        path = self.directory / name
        try:
            return self.disk.open(path, writable=True)
        except FileNotFoundError:
            fd = self.disk.create(path)
        try:
            write_all(self.disk, fd, bytes(_ALLOTTED), 0)  # forced out with the first save
        except OSError:
            self.disk.close(fd)
            raise
        return fd

    def save(self, *, clean: bool = False, without: Sequence[Segment] = ()) -> None:
        """Save which records are done with, if that has changed; overwrites the older slot.

        :raises OSError: the slot could not be written; the last save stands.
        """
        with self._saving:
            with self.gate:
                segments = [one for one in self.segments if one not in without]
                body = body_of((self.next_id, self.reserved, clean, self._boot_id), segments)
            if body == self._saved:
                return
            sequence = self._sequence + 1
            try:
                fd = self._slot(NAMES[sequence % len(NAMES)])
                try:
                    write_all(self.disk, fd, encode(body, sequence), 0)
                    self.disk.sync(fd)
                finally:
                    self.disk.close(fd)
            except OSError:
                self.counters.failed_cursor_saves += 1
                raise
            self._sequence, self._saved = sequence, body

    def tidy(self) -> None:
        """Delete segments that are done with, and save.

        :raises OSError: a file could not be deleted or saved; the next call tries again.
        """
        with self.gate:
            done = [segment for segment in self.segments if segment.is_done]
        for segment in done:
            if segment.damaged:
                self._set_aside(segment)
        done = [segment for segment in done if not segment.damaged]
        try:
            self.save(without=done)
        except OSError as error:
            # On a full disk only deleting makes room. After a crash before the save below,
            # acknowledged segments are missing. The last one stays: it tells the next id.
            done = [segment for segment in done if segment is not self.segments[-1]]
            if not done or error.errno not in NO_SPACE:
                raise
        for segment in done:
            self.disk.remove(segment.path)
            self.replace(segment, None)
            self.counters.deleted += 1
        self.save()

    def _set_aside(self, segment: Segment) -> None:
        try:
            target = set_aside(self.disk, segment.path)
        except FileNotFoundError:
            self.replace(segment, None)  # somebody deleted it, which was reported as it was read
            return
        self.disk.sync_directory(self.directory)
        self.replace(segment, None)
        self.counters.set_aside += 1
        log.warning(
            "damaged journal file kept, its sound records are done with file=%s kept_as=%s",
            segment.path.name,
            target,
        )


def set_aside(disk: Disk, path: Path) -> Path:
    """Rename a segment so that it is not taken for a segment any more; never overwrites another
    file. Returns the new path.
    """
    target, number = path.with_name(path.name + BAD), 1
    while target.exists():
        target, number = path.with_name(f"{path.name}.{number}{BAD}"), number + 1
    disk.rename(path, target)
    return target
