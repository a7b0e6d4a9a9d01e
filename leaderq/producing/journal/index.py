"""The segments of an open journal: what is in them, and which records are done with. Reads records
while others are written; saves which are done with, and deletes segments that are.

Records that cannot be read are reported and skipped. The last run of records that was parsed is
kept (half a mebibyte, or one record if that is larger), so that reading in small steps parses
nothing twice.

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

from leaderq.errors import JournalClosed
from leaderq.producing.journal.cursor import NAMES, body_of, boot_id, encode
from leaderq.producing.journal.disk import NO_SPACE, Disk, write_all
from leaderq.producing.journal.policy import Damage, JournalCounters
from leaderq.producing.journal.records import HEAD_BYTES, Raw, Run
from leaderq.producing.journal.segments import BAD, HEADER_BYTES, Segment
from leaderq.threads import primitives

log = logging.getLogger("leaderq.producing.journal")
_ALLOTTED: Final = 64 * 1024
_NOTHING: Final = Run(0, 0, -1, [])


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
        damages: list[Damage],
    ) -> None:
        self.disk, self.directory, self.stamp = disk, directory, stamp
        # Reentrant only so that a call which interrupts its own thread can be refused.
        self.gate = primitives.RLock()
        """Guards the segments, and the records that wait for the disk."""
        self.segments, self.damages = segments, damages
        self.counters = JournalCounters(corrupt=sum(damage.lost for damage in damages))
        self.floor = next_id
        """No record with a lower id will be written: it was given before, or is not needed."""
        self.reserved = 0
        """The last id that may have been assigned, according to the cursor."""
        self._saving, self._boot_id = primitives.Lock(), boot_id()
        self._sequence, self._saved = sequence, b""
        self._reading = primitives.Lock()
        self._last: tuple[Segment, Run] | None = None  # what was parsed last
        self._is_closed = False
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

    # -- reading -----------------------------------------------------------------------------------

    def read(self, after_id: int, *, max_items: int, max_bytes: int) -> list[Raw]:
        """Return records after ``after_id`` that are not done with: as many as the limits allow,
        and at least one if there is any.
        """
        found: list[Raw] = []
        position, size = after_id + 1, 0
        with self._reading:
            if self._is_closed:
                raise JournalClosed("the journal was closed by another thread meanwhile")
            while len(found) < max_items:
                with self.gate:
                    segment = self.from_id(position)
                    if segment is None:
                        return found
                    last_id, end = segment.last_id, segment.size
                try:
                    run = self._run_to(segment, position, last_id, end)
                except FileNotFoundError:
                    self._gone(segment)
                    continue
                begin = max(0, position - run.first_id)
                some = run.records[begin : begin + max_items - len(found)]
                position = some[-1][0] + 1 if some else last_id + 1
                for raw in self._open_ones(segment, some):
                    size += len(raw[3]) + HEAD_BYTES
                    if found and size > max_bytes:
                        return found
                    found.append(raw)
        return found

    def _gone(self, segment: Segment) -> None:
        """Report a segment whose file is gone, unless another thread has deleted it because all its
        records were acknowledged.
        """
        with self.gate:
            if segment not in self.segments:
                return
            lost = (segment.first_id, segment.last_id)
        self._lose(segment, Damage(segment.path.name, "the file is gone", 0, segment.size, lost))

    def _open_ones(self, segment: Segment, records: list[Raw]) -> list[Raw]:
        with self.gate:
            marks, first_id = segment.marks, segment.first_id
            if marks.front == marks.count and records and records[0][0] - first_id >= marks.front:
                return records
            return [raw for raw in records if raw[0] - first_id not in marks]

    def _run_to(self, segment: Segment, position: int, last_id: int, size: int) -> Run:
        """Return the run with the id ``position`` or, if that cannot be read, with the next that
        can; one without records if there is none.
        """
        before, run = self._last or (None, _NOTHING)
        position = max(position, segment.first_id)
        if before is not segment or position < run.first_id:
            run = Run(HEADER_BYTES, segment.first_id, segment.first_id - 1, [])
        if position <= run.last_id:
            return run
        after = (run.last_id + 1 - segment.first_id, run.end)
        with segment.scan(self.disk, size, after=after) as all_found:
            for found in all_found:
                if isinstance(found, Damage):
                    self._lose(segment, found)
                    continue
                self._last, run = (segment, found), found
                if position <= run.last_id:
                    return run
        if run.last_id < last_id:
            reason, lost = "its end is missing or spoilt", (run.last_id + 1, last_id)
            name = segment.path.name
            self._lose(segment, Damage(name, reason, run.end, size - run.end, lost))
        return _NOTHING

    def _lose(self, segment: Segment, damage: Damage) -> None:
        """Note damage: these records are lost, or something else is damaged."""
        with self.gate:
            segment.damaged = True
            newly = segment.mark(*damage.lost_ids) if damage.lost_ids else 0
            if not newly:
                return  # they were acknowledged, or this is known
            self.counters.corrupt += newly
            self.damages.append(damage)
        log.error(
            "journal records lost count=%d file=%s ids=%s reason=%s",
            newly,
            segment.path,
            damage.lost_ids,
            damage.reason,
        )

    def close(self) -> None:
        """Read nothing more."""
        with self._reading:
            self._is_closed, self._last = True, None

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
