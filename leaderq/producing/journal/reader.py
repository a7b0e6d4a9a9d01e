"""Reads records while others are written.

Records that cannot be read are reported and skipped. The reader keeps the last run of records it
parsed (half a mebibyte, or one record if that is larger), so that reading in small steps parses
nothing twice. It also keeps one file open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

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
    offset: int
    records: list[Raw] = field(default_factory=list)
    first_id: int = 0


class SegmentReader:
    """Reads records from segments. Used by any thread, one at a time. ``on_damage(segment,
    damage)`` is called, without the gate, for each damage found.
    """

    def __init__(self, parts: JournalParts, on_damage: Callable[[Segment, Damage], None]) -> None:
        self._disk, self._gate, self._index = parts.disk, parts.gate, parts.index
        self._on_damage = on_damage
        self._reading = primitives.Lock()
        self._place: _Place | None = None
        self._fd = -1
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
            try:
                place = self._placed(segment, position)
            except FileNotFoundError:
                self._gone(segment)
                continue
            if not place.records or place.next_id <= position:
                self._advance(place, position, last_id, size)
            begin = max(0, position - place.first_id) if place.records else 0
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

    def _placed(self, segment: Segment, position: int) -> _Place:
        """Return the place from which to read id ``position``: the current place, unless it is
        after this id; otherwise the beginning of the segment.
        """
        place = self._place
        if place is None or place.segment is not segment:
            self._close()
            self._fd = self._disk.open(segment.path)
        elif position >= place.next_id or (place.records and place.first_id <= position):
            return place
        self._place = _Place(segment, segment.first_id, HEADER_BYTES)
        return self._place

    def _advance(self, place: _Place, position: int, last_id: int, size: int) -> None:
        """Parse records until one has the id ``position`` or a later id, or until the end."""
        segment, name = place.segment, place.segment.path.name
        place.records = []
        span = ScanRange(place.offset, size, segment.salt, place.next_id, last_id)
        for found in scan(self._read, span):
            if isinstance(found, Run):
                place.records, place.first_id = found.records, found.first_id
                place.next_id, place.offset = found.last_id + 1, found.end
                if found.last_id >= position:
                    return
            elif not found.is_tail:
                self._on_damage(segment, found.damage(name))
        place.records = []
        if place.next_id <= last_id:
            reason, lost = "its end is missing or spoilt", (place.next_id, last_id)
            damage = Damage(name, reason, place.offset, size - place.offset, lost)
            self._on_damage(segment, damage)
        place.next_id, place.offset = last_id + 1, size

    def _read(self, size: int, offset: int) -> bytes:
        return self._disk.read(self._fd, size, offset)

    def forget(self, segment: Segment) -> None:
        with self._reading:
            if self._place is not None and self._place.segment is segment:
                self._close()

    def close(self) -> None:
        with self._reading:
            self._is_closed = True
            self._close()

    def _close(self) -> None:
        self._place = None
        if self._fd >= 0:
            self._disk.close(self._fd)
            self._fd = -1
