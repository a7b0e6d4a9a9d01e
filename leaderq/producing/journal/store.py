"""Writes records to segments, for the line's thread, and syncs them as the policy says. On each
failure of the disk:

* a write fails (no space, an error, a short write that cannot be continued): the file is cut
  back to its last whole record;
* a sync fails, or cutting back does: the file is cut off and never written or synced again, because
  a second sync may succeed although the first one lost the data; the next write begins a new file.
  Records accepted before under a laxer policy and not yet synced stay readable and are counted as
  ``exposed``; the next ``flush`` raises.
"""

from __future__ import annotations

import logging
import math
from contextlib import suppress
from pathlib import Path

from leaderq.base import clock
from leaderq.errors import JournalFailed, JournalFull, LeaderqError, told, with_cause
from leaderq.producing.journal.disk import NO_SPACE, force, write_all
from leaderq.producing.journal.index import SegmentIndex
from leaderq.producing.journal.policy import Every, NoSync, Policy
from leaderq.producing.journal.records import Entry, encode, microseconds
from leaderq.producing.journal.recovery import LEAP
from leaderq.producing.journal.segments import (
    HEADER_BYTES,
    Segment,
    SegmentHeader,
    segment_name,
)

log = logging.getLogger("leaderq.producing.journal")


class RecordStore:
    """See the module. If a method raises, it has stored nothing."""

    def __init__(
        self,
        index: SegmentIndex,
        policy: Policy,
        *,
        segment_bytes: int,
        allot_bytes: int,
    ) -> None:
        self.index, self._disk, self._counters = index, index.disk, index.counters
        self._is_lazy = isinstance(policy, NoSync)
        self._sync_after = policy.items if isinstance(policy, Every) else math.inf
        self._segment_bytes, self._allot_bytes = segment_bytes, allot_bytes
        self.codec = 0
        """The tag of the codec of whatever is written from now on."""
        self.segment: Segment | None = None
        """The one that is written to, in the file of this descriptor."""
        self._fd = -1
        self._is_sound = False  # whether this file may still be used
        self._allotted = 0  # up to where the file has bytes: zeros behind its last record
        self._unsynced = 0
        self._unforced: list[Path] = []  # former segments that nobody has synced
        self._failure: OSError | None = None

    def _trouble_of(self, error: Exception) -> LeaderqError:
        """Return the error for all later callers, while the disk takes nothing because of
        ``error``.
        """
        what = f"journal {str(self.index.directory)!r}"
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            full = JournalFull(f"no space is left for {what}; nothing was stored")
            return with_cause(full, error)
        failed = f"{what} could not be written: {told(error)}; nothing was stored"
        return with_cause(JournalFailed(failed), error)

    # -- records -----------------------------------------------------------------------------------

    def write(self, first_id: int, entries: list[Entry], size: int) -> None:
        """Write records of at most ``size`` bytes together, and sync them if the policy says so."""
        count, segment = len(entries), self.segment
        if segment is None or not self._may_take(segment, first_id, size):
            segment = self.roll()
        self._promise_ids(count)
        now_us = microseconds(clock.calendar_s())
        data = encode(entries, first_id=first_id, appended_us=now_us, salt=segment.salt)
        records, begin = segment.extent
        end = begin + len(data)
        is_small = len(data) < self._allot_bytes >> 4
        if end > self._allotted and is_small and begin > self._allot_bytes >> 6:
            self._allot(begin)  # many small records came: it pays
        unsynced = self._unsynced + count
        try:
            write_all(self._disk, self._fd, data, begin)
            if unsynced >= self._sync_after:
                self._sync()
                unsynced = 0
        except OSError:
            self._counters.failed_writes += 1
            self._cut(begin)
            raise
        self._unsynced, self._allotted = unsynced, max(self._allotted, end)
        segment.extent = (records + count, end)  # stored, by this statement
        self._counters.appended += count
        self._counters.batches += 1

    def _may_take(self, segment: Segment, first_id: int, size: int) -> bool:
        """Whether these records may go to this segment. An empty one takes any size."""
        records, begin = segment.extent
        fits = begin + size <= self._segment_bytes or not records
        is_next = segment.first_id + records == first_id and segment.codec == self.codec
        return self._is_sound and fits and is_next

    def _allot(self, end: int) -> None:
        """Fill the space after ``end`` with zeros. A sync is twice as fast if bytes were
        overwritten, because the file's size has not changed. Zeros are not a record.

        If there is no room for zeros, records are written without them. The zeros are forced out
        with the next record.
        """
        try:
            write_all(self._disk, self._fd, bytes(self._allot_bytes), end)
        except OSError:
            self._allot_bytes = 0
            self._cut(end)
            return
        self._allotted = end + self._allot_bytes

    def _cut(self, end: int) -> None:
        """Remove everything that was written after ``end``."""
        self._allotted = end
        try:
            self._disk.truncate(self._fd, end)
        except OSError:
            self._is_sound = False

    def _promise_ids(self, count: int) -> None:
        """Save up to which id records may be written. This is needed before ids are told whose
        records a crash of the host may lose.
        """
        index = self.index
        if self._sync_after == 1 or index.next_id + count <= index.reserved:
            return
        with index.gate:
            index.reserved = index.next_id + count + LEAP
        index.save()

    # -- syncs -------------------------------------------------------------------------------------

    def _sync(self) -> None:
        """Force out the written records. If this raises, nobody knows what is on the disk, and the
        file is not used any more.
        """
        try:
            self._disk.sync(self._fd)
        except OSError as error:
            self._is_sound = False
            self._counters.failed_syncs += 1
            self._counters.exposed += self._unsynced
            if self._unsynced:
                self._failure = error
            self._unsynced = 0
            log.error(  # noqa: TRY400 - the error says all
                "journal file not synced, the next record begins a new one folder=%s error=%s",
                self.index.directory,
                error,
            )
            raise
        self._unsynced = 0
        self._counters.fsyncs += 1

    def sync(self) -> None:
        """Force out the records that wait for it. A failure is raised by the next ``flush``."""
        if self._unsynced:
            with suppress(OSError):  # logged, counted, and kept for the next flush
                self._sync()

    def flush(self) -> None:
        """Force out all stored records.

        :raises JournalFailed: this failed, or a sync since the last flush did.
        """
        while self._unforced:
            try:
                force(self._disk, self._unforced[-1])
            except FileNotFoundError:
                pass  # all of it was acknowledged
            except OSError as error:
                self._counters.failed_syncs += 1
                self._failure = error
            self._unforced.pop()
        self.sync()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise JournalFailed(
                f"a sync of journal {str(self.index.directory)!r} failed after records had been "
                f"accepted: {failure}; they can be read, but may not outlast a power cut"
            ) from failure

    # -- segments ----------------------------------------------------------------------------------

    def roll(self) -> Segment:
        """Begin a new segment; if that raises, the old one stays in use. What is not yet on the
        disk of the old one is synced first; with ``NO_SYNC`` the next flush does that.
        """
        old = self.segment
        if not self._is_lazy:
            self.sync()
        elif self._unsynced and old is not None:
            self._unforced.append(old.path)
            self._unsynced = 0
        index = self.index
        if old is not None and not old.records:
            index.replace(old, None)  # it makes way for one of the same name
            self.close()
            self._disk.remove(old.path)
        first_id, last, previous = index.next_id, index.segments[-1:], (0, 0, 0)
        if last:
            previous = last[0].first_id, *last[0].extent
        created_us = microseconds(clock.calendar_s())
        header = SegmentHeader(first_id, *previous, created_us, codec=self.codec)
        path = index.directory / segment_name(first_id, index.stamp)
        segment = Segment(path, first_id, index.stamp, header, HEADER_BYTES)
        fd = self._created(path, header.encode())
        self.close()
        self._fd, self._allotted = fd, HEADER_BYTES
        self.segment, self._is_sound = segment, True
        index.replace(None, segment)
        return segment

    def _created(self, path: Path, header: bytes) -> int:
        """Create a segment's file with its header, and force its name to the disk. Returns the
        file's descriptor.
        """
        try:
            fd = self._disk.create(path)
        except FileExistsError:
            # Left by a former try whose removal failed too. No id from it was ever told, or the
            # next would not be its first.
            self._disk.remove(path)
            fd = self._disk.create(path)
        try:
            write_all(self._disk, fd, header, 0)  # forced out with the first record
            self._disk.sync_directory(self.index.directory)
        except OSError:
            self._disk.close(fd)
            with suppress(OSError):  # the next try finds it, and begins by removing it
                self._disk.remove(path)
            raise
        return fd

    def close(self) -> None:
        """Write no more to the segment in use; the next write begins another."""
        if self._fd >= 0:
            if self._is_sound and self.segment is not None and self._allotted > self.segment.size:
                self._cut(self.segment.size)
            fd, self._fd = self._fd, -1
            self._disk.close(fd)
        if self.segment is not None:
            self.segment.sealed = True
        self._is_sound, self.segment, self._unsynced = False, None, 0
