"""The segment file that is being written. Used by one thread at a time.

A file that failed a sync, or could not be cut back after a failed write, is never written or synced again: a second sync may
succeed although the first one lost the data. The next record begins a new file.
"""

from __future__ import annotations

import os
from pathlib import Path

from leaderq.producing.journal.disk import Disk, write_all
from leaderq.producing.journal.segment import Segment
from leaderq.producing.journal.segment_header import HEADER_BYTES, SegmentHeader


class Tape:
    """Writes at the end of a file, and leaves nothing behind of a write that failed."""

    def __init__(self, disk: Disk, directory: Path, stamp: int, *, allot_bytes: int = 0) -> None:
        self.segment: Segment | None = None
        self.end = 0
        """The offset behind the last record."""
        self._disk = disk
        self._directory = directory
        self._stamp = stamp
        self._allot_bytes = allot_bytes
        self._allotted = 0
        self._fd = -1
        self._is_sound = False

    def fits(self, size: int, limit: int) -> bool:
        """Whether so many more bytes may go to this file. An empty one takes anything."""
        return self._is_sound and (self.end + size <= limit or self.end <= HEADER_BYTES)

    def begin(self, header: SegmentHeader) -> Segment:
        """Go on with a new file, which is there, name and all, when this returns.

        :raises OSError: it could not be made; the old file goes on, if it is sound.
        """
        segment = Segment(self._directory, header.first_id, self._stamp)
        fd = self._created(segment.path, header.encode())
        self.close()
        self._fd, self.segment, self.end, self._is_sound = fd, segment, HEADER_BYTES, True
        self._allotted = HEADER_BYTES
        return segment

    def _created(self, path: Path, header: bytes) -> int:
        try:
            fd = self._disk.create(path)
        except FileExistsError:
            # Left by a former try whose removal failed too. No id from it was ever told, or the next would not be its first.
            self._disk.remove(path)
            fd = self._disk.create(path)
        try:
            write_all(self._disk, fd, header, 0)
            self._disk.sync(fd)
            self._disk.sync_directory(self._directory)
        except OSError:
            self._disk.close(fd)
            _try_to_remove(self._disk, path)
            raise
        return fd

    def write(self, data: bytes) -> None:
        """Write behind the last record.

        :raises OSError: the file ends where it ended before, or will not be used any more.
        """
        if (
            self.end + len(data) > self._allotted
            and len(data) < self._allot_bytes >> 4
            and self.end > self._allot_bytes >> 6
        ):
            self._allot()  # many small records came: it pays
        try:
            write_all(self._disk, self._fd, data, self.end)
        except OSError:
            self.cut(self.end)
            raise
        self.end += len(data)
        self._allotted = max(self._allotted, self.end)

    def _allot(self) -> None:
        """Fill what comes next with zeros: a sync of bytes written over need not write down the file's new size as well, and
        is twice as quick. Behind the last record zeros are no record. Without room for them the records are written all the
        same.

        :raises OSError: the sync failed; the file will not be used any more.
        """
        try:
            write_all(self._disk, self._fd, bytes(self._allot_bytes), self.end)
        except OSError:
            self._allot_bytes = 0
            self.cut(self.end)
            return
        self.sync()
        self._allotted = self.end + self._allot_bytes

    def cut(self, end: int) -> None:
        """Take back what was written behind ``end``."""
        self.end = self._allotted = end
        try:
            self._disk.truncate(self._fd, end)
        except OSError:
            self._is_sound = False

    def sync(self) -> None:
        """Force out what was written.

        :raises OSError: nobody knows what the disk holds; the file will not be used any more.
        """
        try:
            self._disk.sync(self._fd)
        except OSError:
            self._is_sound = False
            raise

    def close(self) -> None:
        """Close the file."""
        if self._fd >= 0:
            if self._is_sound and self._allotted > self.end:
                self.cut(self.end)
            os.close(self._fd)
            self._fd = -1
        self._is_sound = False
        self.segment = None


def _try_to_remove(disk: Disk, path: Path) -> None:
    try:
        disk.remove(path)
    except OSError:
        return  # the next try finds it, and begins with removing it
