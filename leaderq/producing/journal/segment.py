"""One segment of a journal in memory: what may be read of it, and which of its records are done with.

Ids within a segment follow each other without a gap, so a record's position is its id less the first. ``records`` and
``size`` count what is committed; the file may be longer (a write under way, or the rest of a failed one).
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import Final

from leaderq.producing.journal.marks import Marks
from leaderq.producing.journal.record import salt_of
from leaderq.producing.journal.segment_header import HEADER_BYTES, segment_name

WAY_BYTES: Final = 1 << 20


class Segment:
    """A segment file. Guarded by the journal's gate."""

    __slots__ = ("damaged", "first_id", "marks", "path", "records", "salt", "sealed", "size", "waypoints")

    def __init__(
        self,
        directory: Path,
        first_id: int,
        stamp: int,
        *,
        records: int = 0,
        size: int = HEADER_BYTES,
        marks: Marks | None = None,
        sealed: bool = False,
        damaged: bool = False,
    ) -> None:
        self.first_id = first_id
        self.path = directory / segment_name(first_id, stamp)
        self.records = records
        self.size = size
        self.marks = marks or Marks()
        self.sealed = sealed
        self.damaged = damaged
        self.salt = salt_of(first_id, stamp)
        self.waypoints: list[tuple[int, int]] = []

    @property
    def last_id(self) -> int:
        """The id of its last record; one less than its first if it has none."""
        return self.first_id + self.records - 1

    @property
    def open_records(self) -> int:
        """How many are not done with."""
        return self.records - self.marks.count

    def pass_by(self, record_id: int, offset: int) -> None:
        """A reader found this record at this offset; one in a mebibyte is remembered."""
        if not self.waypoints or (record_id > self.waypoints[-1][0] and offset >= self.waypoints[-1][1] + WAY_BYTES):
            self.waypoints.append((record_id, offset))

    def waypoint(self, record_id: int) -> tuple[int, int]:
        """The id and offset of a record before this one, to read on from."""
        at = bisect_right(self.waypoints, (record_id, self.size)) - 1
        return self.waypoints[at] if at >= 0 else (self.first_id, HEADER_BYTES)

    @property
    def is_done(self) -> bool:
        """Whether nothing in it, nor to come into it, is of use any more."""
        return self.sealed and self.marks.count >= self.records
