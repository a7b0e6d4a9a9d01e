"""What a journal counts since it was opened."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Counters:
    """Plain numbers, written by the journal; a reader takes a copy with :func:`dataclasses.replace`."""

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
    """How many syncs took less than ``2 ** position`` microseconds, and not less than half of that."""
    failed_writes: int = 0
    failed_syncs: int = 0
    exposed: int = 0
    """Records accepted under a policy other than ``EVERY_ITEM`` whose later sync failed: readable, perhaps not on disk."""
    refused_full: int = 0
    expired: int = 0
    corrupt: int = 0
    """Records that could not be read any more."""
    set_aside: int = 0
    """Segments renamed to ``*.bad``."""
    deleted: int = 0
    """Segments deleted, all their records being done with."""
    cursor_saves: int = 0
    failed_cursor_saves: int = 0

    def fsync_quantile_s(self, share: float) -> float:
        """Seconds that at least ``share`` of the syncs did not take, to within a factor of two; 0 if there was none."""
        left = share * self.fsyncs
        for position, count in enumerate(self.fsyncs_by_log2_us):
            left -= count
            if left <= 0 and self.fsyncs:
                return float((1 << position) / 1e6)
        return 0.0
