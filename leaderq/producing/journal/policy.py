"""What a journal is told (when to force records to the disk, what it may take), and what it tells:
what it found when it was opened, what it found damaged, what it counts.

===========  ====================================  =================================================
policy       ``append`` returns when               what a power cut can cost (a killed process:
                                                   nothing with any)
===========  ====================================  =================================================
EVERY_ITEM   the record is on the disk             nothing
Every(n)     it is written, and fewer than ``n``   the last ``n - 1`` records
             are not yet forced out
Interval(s)  it is written                         the records of the last ``s`` seconds
NO_SYNC      it is written                         what the system has not got round to; half a
                                                   minute is common
===========  ====================================  =================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from leaderq.base.arguments import at_least, is_number, require, wanted


@dataclass(frozen=True)
class Every:
    """Force out once ``items`` records wait. Records that arrive together are forced out
    together.
    """

    items: int

    def __post_init__(self) -> None:
        require(at_least("Every.items", self.items, 1))


@dataclass(frozen=True)
class Interval:
    """Force out every ``seconds`` seconds, if anything was written."""

    seconds: float

    def __post_init__(self) -> None:
        seconds = self.seconds
        holds = is_number(seconds) and seconds > 0
        require(wanted("Interval.seconds", seconds, holds, "more than 0 seconds"))


@dataclass(frozen=True)
class NoSync:
    """Leave syncing to the operating system; ``flush`` and ``close`` force records out
    nevertheless.
    """


EVERY_ITEM: Final = Every(1)
NO_SYNC: Final = NoSync()
Policy = Every | Interval | NoSync


@dataclass(frozen=True)
class Damage:
    """A damaged place in a segment. Everything after it was read nevertheless, and no byte of it
    was deleted.

    ``file`` is the segment's name in the directory when it was found; it gets the ending ``.bad``
    when its readable records are done with, or at once if it has none. ``lost_ids``: the first and
    the last id of the records that cannot be read; ``None`` if no record was damaged, or if the ids
    are not known. After a power cut these may be records that were never reported as stored.
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
    """What was found and done when a journal was opened."""

    was_clean: bool = True
    """Whether it had been closed, rather than its process killed; ``True`` for a new one."""
    cursor_lost: bool = False
    """Neither slot could be read: everything still in the segments is given out again."""
    torn_bytes: int = 0
    """Bytes cut off behind the last whole record: a write that the crash interrupted."""
    damages: tuple[Damage, ...] = ()
    took_s: float = 0.0


@dataclass
class JournalCounters:
    """Plain numbers, written by the journal; a reader takes a copy with
    :func:`dataclasses.replace`."""

    appended: int = 0
    batches: int = 0
    """Writes; ``appended / batches`` is the mean size of a group."""
    fsyncs: int = 0
    failed_writes: int = 0
    """Writes that the disk refused, or could not force out; they are tried again."""
    failed_syncs: int = 0
    exposed: int = 0
    """Records accepted under a policy other than ``EVERY_ITEM`` whose later sync failed: readable,
    perhaps not on disk."""
    corrupt: int = 0
    """Records that could not be read any more."""
    set_aside: int = 0
    """Segments renamed to ``*.bad``."""
    deleted: int = 0
    """Segments deleted, all their records being done with."""
    failed_cursor_saves: int = 0
