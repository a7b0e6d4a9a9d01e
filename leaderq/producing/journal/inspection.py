"""Looks into a journal from outside. It changes nothing and takes no lock, so it works while
another process has the journal open.

In that case acknowledgements are seen up to half a second late, and the last record may be seen
half written. A segment that is deleted meanwhile is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from leaderq.errors import ConfigurationError
from leaderq.producing.journal.disk import Disk, is_locked
from leaderq.producing.journal.policy import Damage
from leaderq.producing.journal.records import (
    HEAD_BYTES,
    JournalRecord,
    Run,
    ScanRange,
    record_of,
    salt_of,
    scan,
)
from leaderq.producing.journal.recovery import DirectoryScan, SegmentFile, segment_file
from leaderq.producing.journal.segments import HEADER_BYTES, AckBitmap, parse_name

_NAME_LENGTH: Final = len("00000000000000000001-5c31b172.seg")


@dataclass(frozen=True)
class SegmentView:
    """One segment. ``done``: how many records are acknowledged, expired or lost; ``damages``: those
    found, as far as they were looked for.
    """

    file: str
    first_id: int
    records: int
    done: int
    size: int
    is_current: bool
    damages: tuple[Damage, ...] = ()

    @property
    def last_id(self) -> int | None:
        """The id of its last record; ``None`` if it has no record."""
        return self.first_id + self.records - 1 if self.records else None


@dataclass(frozen=True)
class JournalView:
    """A whole journal. ``bad``: the files that were set aside, with their sizes; ``missing``:
    segments that are gone.
    """

    directory: Path
    is_open: bool
    is_clean: bool
    cursor_slots_bad: int
    next_id: int
    segments: tuple[SegmentView, ...]
    bad: tuple[tuple[str, int], ...]
    missing: tuple[Damage, ...]

    @property
    def depth(self) -> int:
        """How many records are not done with."""
        return sum(segment.records - segment.done for segment in self.segments)

    @property
    def bytes_used(self) -> int:
        return sum(segment.size for segment in self.segments)

    @property
    def damages(self) -> tuple[Damage, ...]:
        return (*(damage for segment in self.segments for damage in segment.damages), *self.missing)


def look(directory: str | Path, *, thorough: bool = False) -> JournalView:
    """Return the contents of a journal. ``thorough``: read every byte and check every record.

    :raises ConfigurationError: there is no journal.
    :raises JournalFailed: a later version of leaderq wrote a segment.
    """
    place = Path(directory)
    found, is_open = _found(place), is_locked(place)
    segments = []
    for file in found.files:
        with suppress(FileNotFoundError):  # deleted meanwhile
            segments.append(_view(found, file, thorough, is_open))
    return JournalView(
        place,
        is_open,
        found.cursor.clean,
        found.bad_slots,
        max([found.cursor.next_id, *(view.first_id + view.records for view in segments)]),
        tuple(segments),
        tuple((path.name, path.stat().st_size) for path in found.bad),
        () if is_open else tuple(found.missing()),
    )


def _found(place: Path) -> DirectoryScan:
    found = DirectoryScan.of(Disk(), place) if place.is_dir() else None
    if found is None or found.is_new:
        what = "journal in" if found else "directory"
        raise ConfigurationError(
            f"there is no {what} {str(place)!r}; a journal is a directory with *.seg files in it"
        )
    return found


def _view(found: DirectoryScan, file: SegmentFile, thorough: bool, is_open: bool) -> SegmentView:
    name, is_current = file.path.name, is_open and file is found.files[-1]
    held = found.content(file, thorough=thorough, is_current=is_current)
    damages, records = held.damages, held.records
    if held.is_open_ended and held.torn and not is_current:
        damages.append(Damage(name, "behind its last whole record", held.size, held.torn))
    known = found.known(file.first_id)
    done = min(known.marks.count, records) if known else 0
    if found.is_finished(file):
        done = records
    return SegmentView(name, file.first_id, records, done, file.size, is_current, tuple(damages))


def entries(
    directory: str | Path, *, after_id: int = 0, done_too: bool = False, bad_too: bool = False
) -> Iterator[JournalRecord]:
    """Yield the records after ``after_id`` that are not done with, in order. ``done_too``: also
    those that are done with and still exist; ``bad_too``: also those in files that were set aside.
    Unreadable records are left out.

    :raises ConfigurationError: there is no journal.
    """
    found = _found(Path(directory))
    files = [file for file in found.files if done_too or not found.is_finished(file)]
    for path in found.bad if bad_too else ():
        if (name := parse_name(path.name[:_NAME_LENGTH])) is not None:
            files.append(segment_file(found.disk, path, *name))
    for file in sorted(files, key=lambda file: file.first_id):
        known = found.known(file.first_id)
        marks = AckBitmap() if known is None or done_too else known.marks
        for entry in _entries(found.disk, file):
            if entry.id > after_id and entry.id - file.first_id not in marks:
                yield entry


def _entries(disk: Disk, file: SegmentFile) -> Iterator[JournalRecord]:
    try:
        fd = disk.open(file.path)
    except FileNotFoundError:
        return  # deleted meanwhile
    salt, last_id = salt_of(file.first_id, file.stamp), file.first_id + file.size // HEAD_BYTES
    try:
        span = ScanRange(HEADER_BYTES, file.size, salt, file.first_id, last_id)
        for run in scan(partial(disk.read, fd), span):
            if isinstance(run, Run):
                yield from map(record_of, run.records)
    finally:
        disk.close(fd)
