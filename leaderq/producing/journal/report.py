"""What a journal tells: what it found when it was opened, what it found damaged, what it counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple


class JournalPlace(NamedTuple):
    """Where a record is: the segment's file in ``directory``, and how many records lie before it
    there. The file's name ends in ``.bad`` if it was set aside later."""

    directory: Path
    segment: str
    position: int
    id: int


@dataclass(frozen=True)
class Damage:
    """Something spoilt. What follows it was read all the same, and no byte of it was deleted.

    ``file`` is the segment's name in the directory when it was found; it gets the ending ``.bad``
    when what is sound in it is done with, or at once if nothing is. ``lost_ids`` are the first and
    last id of records that cannot be read, ``None`` if no record was hurt, or nobody knows which.
    """

    file: str
    reason: str
    offset: int = 0
    size: int = 0
    lost_ids: tuple[int, int] | None = None

    @property
    def lost(self) -> int:
        return self.lost_ids[1] - self.lost_ids[0] + 1 if self.lost_ids else 0


@dataclass(frozen=True)
class RecoveryReport:
    """What opening a journal found and did."""

    segments: int = 0
    records: int = 0
    """Records that are not done with."""
    bytes_used: int = 0
    was_clean: bool = True
    """Whether it had been closed, rather than its process killed; ``True`` for a new one."""
    cursor_slots_bad: int = 0
    cursor_lost: bool = False
    """Neither slot could be read: everything still in the segments is given out again."""
    torn_bytes: int = 0
    """Bytes cut off behind the last whole record: a write that the crash interrupted."""
    damages: tuple[Damage, ...] = ()
    scanned_bytes: int = 0
    took_s: float = 0.0


@dataclass
class JournalCounters:
    """Plain numbers, written by the journal; a reader takes a copy with
    :func:`dataclasses.replace`."""

    appended: int = 0
    acked: int = 0
    batches: int = 0
    """Writes; ``appended / batches`` is the mean size of a group."""
    largest_batch: int = 0
    fsyncs: int = 0
    fsync_s: float = 0.0
    """Seconds spent in syncs of segments."""
    slowest_fsync_s: float = 0.0
    fsyncs_by_log2_us: list[int] = field(default_factory=lambda: [0] * 40)
    """How many syncs took less than ``2 ** position`` microseconds, and not less than half of that.
    """
    failed_writes: int = 0
    failed_syncs: int = 0
    exposed: int = 0
    """Records accepted under a policy other than ``EVERY_ITEM`` whose later sync failed: readable,
    perhaps not on disk."""
    refused_full: int = 0
    corrupt: int = 0
    """Records that could not be read any more."""
    set_aside: int = 0
    """Segments renamed to ``*.bad``."""
    deleted: int = 0
    """Segments deleted, all their records being done with."""
    cursor_saves: int = 0
    failed_cursor_saves: int = 0

    def fsync_quantile_s(self, share: float) -> float:
        """Seconds that at least ``share`` of the syncs did not take, to within a factor of two; 0
        if there was none."""
        left = share * self.fsyncs
        for position, count in enumerate(self.fsyncs_by_log2_us):
            left -= count
            if left <= 0 and self.fsyncs:
                return float((1 << position) / 1e6)
        return 0.0
