"""Reads records while others are written.

Records that cannot be read are reported and skipped. The reader keeps the last run of records it
parsed (half a mebibyte, or one record if that is larger), so that reading in small steps parses
nothing twice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leaderq.errors import JournalClosed
from leaderq.producing.journal.index import SegmentIndex
from leaderq.producing.journal.policy import Damage
from leaderq.producing.journal.records import HEAD_BYTES, Raw, Run
from leaderq.producing.journal.segments import HEADER_BYTES, Segment
from leaderq.threads import primitives

_NOTHING: Final = Run(0, 0, -1, [])


class SegmentReader:
    """Reads records from segments. Used by any thread, one at a time. ``on_damage(segment,
    damage)`` is called, without the gate, for each damage found.
    """

    def __init__(self, index: SegmentIndex, on_damage: Callable[[Segment, Damage], None]) -> None:
        self._index, self._gate, self._on_damage = index, index.gate, on_damage
        self._reading = primitives.Lock()
        self._last: tuple[Segment, Run] | None = None  # what was parsed last
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
                run = self._run_to(segment, position, last_id, size)
            except FileNotFoundError:
                self._gone(segment)
                continue
            begin = max(0, position - run.first_id)
            some = run.records[begin : begin + most]
            position = some[-1][0] + 1 if some else last_id + 1
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
        for found in segment.scan(self._index.disk, size, after=after):
            if isinstance(found, Damage):
                self._on_damage(segment, found)
                continue
            self._last, run = (segment, found), found
            if position <= run.last_id:
                return run
        if run.last_id < last_id:
            reason, lost = "its end is missing or spoilt", (run.last_id + 1, last_id)
            name = segment.path.name
            self._on_damage(segment, Damage(name, reason, run.end, size - run.end, lost))
        return _NOTHING

    def close(self) -> None:
        with self._reading:
            self._is_closed, self._last = True, None
