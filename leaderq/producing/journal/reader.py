"""Reads records while others are written.

Records that cannot be read are reported and skipped. The reader keeps the last run of records it
parsed (half a mebibyte, or one record if that is larger), so that reading in small steps parses
nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from leaderq.errors import JournalClosed
from leaderq.producing.journal.policy import Damage
from leaderq.producing.journal.records import HEAD_BYTES, Raw, Run, ScanRange, scan
from leaderq.producing.journal.segments import HEADER_BYTES, JournalParts, Segment
from leaderq.threads import primitives


@dataclass
class _Place:
    """How far a segment was read. ``records``: the records parsed last, from ``first_id`` on; they
    end at ``offset``, where the record ``next_id`` begins.
    """

    segment: Segment
    next_id: int
    offset: int = HEADER_BYTES
    records: list[Raw] = field(default_factory=list)
    first_id: int = 0

    def leads_to(self, segment: Segment, position: int) -> bool:
        """Whether nothing before this place need be parsed again for id ``position``."""
        is_among = bool(self.records) and self.first_id <= position
        return self.segment is segment and (is_among or position >= self.next_id)


class SegmentReader:
    """Reads records from segments. Used by any thread, one at a time. ``on_damage(segment,
    damage)`` is called, without the gate, for each damage found.
    """

    def __init__(self, parts: JournalParts, on_damage: Callable[[Segment, Damage], None]) -> None:
        self._disk, self._gate, self._index = parts.disk, parts.gate, parts.index
        self._on_damage = on_damage
        self._reading = primitives.Lock()
        self._place: _Place | None = None
        self._is_closed = False

    def read(self, after_id: int, *, max_items: int, max_bytes: int) -> list[Raw]:
        """Return records after ``after_id`` that are not done with: as many as the limits allow,
        and at least one if there is any.
        """
        found: list[Raw] = []
        position, size = after_id + 1, 0
        with self._reading:
            if self._is_closed:
                raise JournalClosed("the journal was closed by another thread meanwhile")
            while len(found) < max_items and (
                some := self._some_from(position, max_items - len(found))
            ):
                position = some[-1][0] + 1
                for raw in some:
                    size += len(raw[3]) + HEAD_BYTES
                    if found and size > max_bytes:
                        return found
                    found.append(raw)
        return found

    def _some_from(self, position: int, most: int) -> list[Raw]:
        """Return the next records, from id ``position`` on, that are not done with, at most
        ``most``.
        """
        while True:
            with self._gate:
                segment = self._index.from_id(position)
                if segment is None:
                    return []
                last_id, size = segment.last_id, segment.size
            place = self._place
            if place is None or not place.leads_to(segment, position):
                place = self._place = _Place(segment, segment.first_id)
            if place.next_id <= position or not place.records:
                try:
                    self._advance(place, position, last_id, size)
                except FileNotFoundError:
                    self._gone(segment)
                    continue
            begin = max(0, position - place.first_id)
            some = place.records[begin : begin + most]
            position = some[-1][0] + 1 if some else place.next_id
            if wanted := self._open_ones(segment, some):
                return wanted

    def _gone(self, segment: Segment) -> None:
        """Report a segment whose file is gone, unless another thread has deleted it because all its
        records were acknowledged.
        """
        with self._gate:
            if segment not in self._index.segments:
                return
            lost = (segment.first_id, segment.last_id)
        self._on_damage(
            segment, Damage(segment.path.name, "the file is gone", 0, segment.size, lost)
        )

    def _open_ones(self, segment: Segment, records: list[Raw]) -> list[Raw]:
        with self._gate:
            marks, first_id = segment.marks, segment.first_id
            if marks.front == marks.count and records and records[0][0] - first_id >= marks.front:
                return records
            return [raw for raw in records if raw[0] - first_id not in marks]

    def _advance(self, place: _Place, position: int, last_id: int, size: int) -> None:
        """Parse records until one has the id ``position`` or a later id, or until the end."""
        segment, name = place.segment, place.segment.path.name
        place.records = []
        span = ScanRange(place.offset, size, segment.salt, place.next_id, last_id)
        fd = self._disk.open(segment.path)
        try:
            for found in scan(partial(self._disk.read, fd), span):
                if isinstance(found, Run):
                    place.next_id, place.offset = found.last_id + 1, found.end
                    if found.last_id >= position:
                        place.records, place.first_id = found.records, found.first_id
                        return
                elif not found.is_tail:
                    self._on_damage(segment, found.damage(name))
        finally:
            self._disk.close(fd)
        if place.next_id <= last_id:
            reason, lost = "its end is missing or spoilt", (place.next_id, last_id)
            damage = Damage(name, reason, place.offset, size - place.offset, lost)
            self._on_damage(segment, damage)
        place.next_id, place.offset = last_id + 1, size

    def close(self) -> None:
        with self._reading:
            self._is_closed, self._place = True, None
