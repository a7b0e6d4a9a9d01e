"""What a journal found when it was opened, and what it found to be spoilt."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Damage:
    """Something spoilt. What follows it was read all the same, and no byte of it was deleted.

    ``file`` is the segment's name in the directory when it was found; it gets the ending ``.bad`` when what is sound in it
    is done with, or at once if nothing is. ``lost_ids`` are the first and last id of records that cannot be read, ``None``
    if no record was hurt, or nobody knows which.
    """

    file: str
    reason: str
    offset: int = 0
    size: int = 0
    lost_ids: tuple[int, int] | None = None

    @property
    def lost(self) -> int:
        """How many records are lost for certain."""
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
