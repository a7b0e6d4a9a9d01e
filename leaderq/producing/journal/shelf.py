"""The segments of a journal in the order of their ids, and what is done with in them. Guarded by the journal's gate."""

from __future__ import annotations

from bisect import bisect_right

from leaderq.producing.journal.segment import Segment


class Shelf:
    """Finds segments by id, and counts what they hold."""

    def __init__(self, segments: list[Segment]) -> None:
        self.segments = segments
        self._firsts = [segment.first_id for segment in segments]
        self.bytes_used = sum(segment.size for segment in segments)

    @property
    def depth(self) -> int:
        """Records that are not done with."""
        return sum(segment.open_records for segment in self.segments)

    def add(self, segment: Segment) -> None:
        """Put a new segment behind the others."""
        self.segments.append(segment)
        self._firsts.append(segment.first_id)
        self.bytes_used += segment.size

    def grow(self, segment: Segment, *, records: int, size: int) -> None:
        """Records were committed to a segment."""
        segment.records += records
        segment.size += size
        self.bytes_used += size

    def holding(self, record_id: int) -> Segment | None:
        """The segment that has this id."""
        at = bisect_right(self._firsts, record_id) - 1
        if at < 0 or record_id > self.segments[at].last_id:
            return None
        return self.segments[at]

    def from_id(self, record_id: int) -> Segment | None:
        """The first segment that has this id or a later one, and a record that is not done with."""
        for segment in self.segments[max(0, bisect_right(self._firsts, record_id) - 1) :]:
            if segment.last_id >= record_id and segment.open_records:
                return segment
        return None

    def mark(self, segment: Segment, first_id: int, last_id: int) -> int:
        """Records of one segment are done with; gives how many were not before."""
        if first_id == last_id:
            newly = int(segment.marks.add(first_id - segment.first_id))
        elif first_id - segment.first_id <= segment.marks.front:
            newly = segment.marks.add_up_to(last_id + 1 - segment.first_id)
        else:
            newly = sum(segment.marks.add(number - segment.first_id) for number in range(first_id, last_id + 1))
        return newly

    def mark_up_to(self, last_id: int) -> int:
        """All up to this id are done with; gives how many were not before."""
        newly = 0
        for segment in self.segments:
            if segment.first_id > last_id:
                break
            if segment.records:
                newly += self.mark(segment, segment.first_id, min(last_id, segment.last_id))
        return newly

    def done(self) -> list[Segment]:
        """The segments that may go."""
        return [segment for segment in self.segments if segment.is_done]

    def remove(self, segment: Segment) -> None:
        """A segment is gone."""
        at = self.segments.index(segment)
        del self.segments[at], self._firsts[at]
        self.bytes_used -= segment.size

    @property
    def oldest(self) -> tuple[Segment, int] | None:
        """The first record that is not done with, by segment and id."""
        for segment in self.segments:
            if segment.open_records:
                return segment, segment.first_id + segment.marks.front
        return None
