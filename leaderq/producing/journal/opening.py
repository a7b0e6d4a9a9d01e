"""From a directory in any state to what a journal begins with."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from leaderq.producing.journal.directory_lock import DirectoryLock
from leaderq.producing.journal.disk import Disk
from leaderq.producing.journal.recovery import Recovery
from leaderq.producing.journal.report import RecoveryReport
from leaderq.producing.journal.shelf import Shelf
from leaderq.producing.journal.survey import survey


@dataclass(frozen=True)
class First:
    """What a journal begins with; ``previous`` is what the header of its first segment says of the one before."""

    shelf: Shelf
    next_id: int
    stamp: int
    sequence: int
    previous: tuple[int, int, int]
    report: RecoveryReport


def opened(disk: Disk, directory: Path) -> tuple[DirectoryLock, First]:
    """Lock a directory, made if need be, and put it right.

    :raises JournalLocked: somebody else has it open.
    :raises OSError: the file system would not.
    """
    began = time.perf_counter()
    if not directory.is_dir():
        directory.mkdir(parents=True, exist_ok=True)
        disk.sync_directory(directory.parent)
    lock = DirectoryLock(directory)
    try:
        return lock, _recovered(disk, directory, began)
    except BaseException:
        lock.release()
        raise


def _recovered(disk: Disk, directory: Path, began: float) -> First:
    found = survey(disk, directory)
    work = Recovery(disk, directory, found)
    work.run()
    shelf = Shelf(work.segments)
    last = work.segments[-1] if work.segments else None
    existing = [slot for slot in found.slots if slot is not None]
    report = RecoveryReport(
        segments=len(work.segments),
        records=shelf.depth,
        bytes_used=shelf.bytes_used,
        was_clean=found.is_new or (found.cursor is not None and found.cursor.clean),
        cursor_slots_bad=0 if found.is_new else found.bad_slots,
        cursor_lost=not found.is_new and found.cursor is None,
        torn_bytes=work.torn_bytes,
        damages=tuple(work.damages),
        scanned_bytes=work.scanned_bytes,
        took_s=time.perf_counter() - began,
    )
    return First(
        shelf,
        work.next_id,
        found.stamp if found.stamp is not None else secrets.randbits(32),
        max((slot.sequence for slot in existing), default=0),
        (last.first_id, last.records, last.size) if last else (0, 0, 0),
        report,
    )
