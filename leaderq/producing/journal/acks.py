"""What becomes of records once they are stored: acknowledged, expired, or lost. Each is counted
once.

Has segments deleted when all in them is done with. The segment that is being written is closed for
that when half of it is used, or when the journal was full: else what was acknowledged in it would
take room for ever.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from threading import RLock

from leaderq.producing.journal.committer import Committer, contained
from leaderq.producing.journal.records import JournalRecord
from leaderq.producing.journal.report import Damage, JournalCounters
from leaderq.producing.journal.segments import Segment, SegmentIndex

log = logging.getLogger("leaderq.producing.journal")


class Acks:
    """``large_bytes``: from which size on the current segment is closed when all in it is done
    with. Takes the gate."""

    def __init__(
        self,
        gate: RLock,
        index: SegmentIndex,
        counters: JournalCounters,
        committer: Committer,
        *,
        large_bytes: int,
        damages: Iterable[Damage],
        on_expired: Callable[[JournalRecord], object] | None,
    ) -> None:
        self._gate, self._index, self._counters, self._committer = gate, index, counters, committer
        self._large_bytes = large_bytes
        self._on_expired = on_expired
        self._is_pressed = False
        self.damages = list(damages)

    def ack(self, record_ids: Iterable[int]) -> int:
        """See :meth:`Journal.ack_many`."""
        wanted = record_ids if isinstance(record_ids, (list, tuple, range)) else list(record_ids)
        if not wanted:
            return 0
        with self._gate:
            if max(wanted) >= self._index.next_id:
                last, following = max(wanted), self._index.next_id
                raise ValueError(f"no record has had id {last} yet; the next will be {following}")
            newly = self._mark_all(wanted)
            self._counters.acked += newly
        return newly

    def _mark_all(self, wanted: Iterable[int]) -> int:
        newly, last_id = 0, -1
        segment: Segment | None = None
        for number in wanted:
            if segment is None or not segment.first_id <= number <= last_id:
                self._marked(segment)
                segment = self._index.holding(number)
                last_id = segment.last_id if segment else -1
            if segment is not None and segment.marks.add(number - segment.first_id):
                newly += 1
        self._marked(segment)
        return newly

    def ack_to(self, record_id: int) -> int:
        """See :meth:`Journal.ack_to`."""
        with self._gate:
            newly = self._index.mark_up_to(record_id)
            self._counters.acked += newly
            for segment in self._index.segments:
                self._marked(segment)
        return newly

    def expire(self, entry: JournalRecord) -> None:
        """A record's time was over when it was read."""
        with self._gate:
            segment = self._index.holding(entry.id)
            if segment is None or not self._index.mark(segment, entry.id, entry.id):
                return  # acknowledged, or expired by another reader
            self._counters.expired += 1
            self._marked(segment)
        if self._on_expired is not None:
            with contained("on_expired"):
                self._on_expired(entry)

    def lose(self, segment: Segment, damage: Damage) -> None:
        """Records cannot be read."""
        with self._gate:
            segment.damaged = True
            newly = self._index.mark(segment, *damage.lost_ids) if damage.lost_ids else 0
            if not newly:
                return  # they were acknowledged, or this is known
            self._counters.corrupt += newly
            self.damages.append(damage)
            self._marked(segment)
        log.error(
            "journal: %d records of %s are lost (ids %s): %s",
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
        elif not segment.open_records and segment.records and self._is_worth_closing(segment):
            self._committer.want_upkeep()

    def _is_worth_closing(self, segment: Segment) -> bool:
        return self._is_pressed or segment.size > self._large_bytes

    def press(self) -> None:
        """Under the gate: the journal is full."""
        self._is_pressed = True
        if not self._index.depth:
            self._committer.want_upkeep()

    def take_spent(self, segment: Segment | None) -> bool:
        """Return whether closing the segment that is being written would make room."""
        with self._gate:
            if (
                segment is None
                or not segment.records
                or segment.open_records
                or not self._is_worth_closing(segment)
            ):
                return False
            self._is_pressed = False
            return True
