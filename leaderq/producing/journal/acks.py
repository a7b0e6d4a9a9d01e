"""What becomes of records once they are stored: acknowledged, or lost. Each is counted once.

Has segments deleted when all in them is done with. The segment that is being written is closed for
that when half of it is used, or when the journal was full: else what was acknowledged in it would
take room for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from leaderq.producing.journal.committer import Committer
from leaderq.producing.journal.report import Damage
from leaderq.producing.journal.segments import JournalParts, Segment

log = logging.getLogger("leaderq.producing.journal")


class Acks:
    """``large_bytes``: from which size on the current segment is closed when all in it is done
    with. Takes the gate."""

    def __init__(
        self,
        parts: JournalParts,
        committer: Committer,
        *,
        large_bytes: int,
        damages: Iterable[Damage],
    ) -> None:
        self._gate, self._index, self._counters = parts.gate, parts.index, parts.counters
        self._committer = committer
        self._large_bytes = large_bytes
        self._is_pressed = False
        self.damages = list(damages)

    def ack(self, record_ids: Iterable[int]) -> int:
        wanted = record_ids if isinstance(record_ids, (list, tuple, range)) else list(record_ids)
        newly, last_id = 0, -1
        segment: Segment | None = None
        with self._gate:
            if wanted and max(wanted) >= self._index.next_id:
                last, following = max(wanted), self._index.next_id
                raise ValueError(f"no record has had id {last} yet; the next will be {following}")
            for number in wanted:
                if segment is None or not segment.first_id <= number <= last_id:
                    self._marked(segment)
                    segment = self._index.holding(number)
                    last_id = segment.last_id if segment else -1
                if segment is not None and segment.marks.add(number - segment.first_id):
                    newly += 1
            self._marked(segment)
            self._counters.acked += newly
        return newly

    def ack_to(self, record_id: int) -> int:
        newly = 0
        with self._gate:
            for segment in self._index.segments:
                if segment.records and segment.first_id <= record_id:
                    newly += segment.mark(segment.first_id, min(record_id, segment.last_id))
                    self._marked(segment)
            self._counters.acked += newly
        return newly

    def lose(self, segment: Segment, damage: Damage) -> None:
        with self._gate:
            segment.damaged = True
            newly = segment.mark(*damage.lost_ids) if damage.lost_ids else 0
            if not newly:
                return  # they were acknowledged, or this is known
            self._counters.corrupt += newly
            self.damages.append(damage)
            self._marked(segment)
        log.error(
            "journal records lost count=%d file=%s ids=%s reason=%s",
            newly,
            segment.path,
            damage.lost_ids,
            damage.reason,
        )

    def _marked(self, segment: Segment | None) -> None:
        """Records of a segment were marked: have it go if all are."""
        if segment is None:
            return
        if segment.is_done:
            self._committer.kick()
        elif self._is_spent(segment):
            self._committer.want_upkeep()

    def _is_spent(self, segment: Segment) -> bool:
        """Whether closing a segment that is being written would make room."""
        if not segment.records or segment.open_records:
            return False
        return self._is_pressed or segment.size > self._large_bytes

    def press(self) -> None:
        """Under the gate: the journal is full."""
        self._is_pressed = True
        if not self._index.depth:
            self._committer.want_upkeep()

    def take_spent(self, segment: Segment | None) -> bool:
        with self._gate:
            if segment is None or not self._is_spent(segment):
                return False
            self._is_pressed = False
            return True
