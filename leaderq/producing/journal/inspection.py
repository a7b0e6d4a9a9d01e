"""Looks into a journal from outside. It changes nothing and takes no lock, so it works while
another process has the journal open.

In that case acknowledgements are seen up to half a second late, and the last record may be seen
half written. A segment that is deleted meanwhile is left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from leaderq.errors import ConfigurationError
from leaderq.producing.journal.disk import Disk, is_locked
from leaderq.producing.journal.policy import Damage
from leaderq.producing.journal.records import JournalRecord, record_of
from leaderq.producing.journal.recovery import DirectoryScan, segment_of
from leaderq.producing.journal.segments import AckBitmap, Segment, parse_name

_NAME_LENGTH: Final = len("00000000000000000001-5c31b172.seg")


class JournalView(DirectoryScan):
    """A whole journal; each of its segments with the extent and the damages that were found.
    ``thorough``: read every byte and check every record.

    :raises ConfigurationError: there is no journal.
    :raises JournalFailed: a later version of leaderq wrote a segment.
    """

    def __init__(self, directory: str | Path, *, thorough: bool = False) -> None:
        place = Path(directory)
        if is_there := place.is_dir():
            super().__init__(Disk(), place)
        if not is_there or self.is_new:
            what = "journal in" if is_there else "directory"
            raise ConfigurationError(
                f"there is no {what} {str(place)!r}; a journal is a directory with *.seg files in "
                "it"
            )
        self.directory, self.is_open = place, is_locked(place)
        self.current = self.files[-1] if self.is_open and self.files else None
        """The segment that is being written."""
        self.segments: list[Segment] = []
        for one in self.files:
            with suppress(FileNotFoundError):  # deleted meanwhile
                self._look_into(one, thorough)
                self.segments.append(one)
        missing = () if self.is_open else self.missing()
        self.damages = [*(damage for one in self.segments for damage in one.damages), *missing]

    def _look_into(self, one: Segment, thorough: bool) -> None:
        is_current = one is self.current
        torn, is_open_ended = self.examine(one, thorough=thorough, is_current=is_current)
        if is_open_ended and torn and not is_current:
            reason = "behind its last whole record"
            one.damages.append(Damage(one.path.name, reason, one.size, torn))
        one.marks.clip(one.records)
        if self.is_finished(one):
            one.mark(one.first_id, one.last_id)

    @property
    def next_id(self) -> int:
        return max([self.cursor.next_id, *(one.last_id + 1 for one in self.segments)])

    @property
    def depth(self) -> int:
        """How many records are not done with."""
        return sum(one.open_records for one in self.segments)

    @property
    def bytes_used(self) -> int:
        return sum(one.file_bytes for one in self.segments)


def entries(
    directory: str | Path, *, after_id: int = 0, done_too: bool = False, bad_too: bool = False
) -> Iterator[JournalRecord]:
    """Yield the records after ``after_id`` that are not done with, in order. ``done_too``: also
    those that are done with and still exist; ``bad_too``: also those in files that were set aside.
    Unreadable records are left out.

    :raises ConfigurationError: there is no journal.
    """
    found = JournalView(directory)
    files = [one for one in found.files if done_too or not found.is_finished(one)]
    for path in found.bad if bad_too else ():
        if (name := parse_name(path.name[:_NAME_LENGTH])) is not None:
            files.append(segment_of(found.disk, path, *name))
    for one in sorted(files, key=lambda one: one.first_id):
        marks = AckBitmap() if done_too else one.marks
        with suppress(FileNotFoundError), one.scan(found.disk, one.file_bytes) as runs:
            for run in runs:
                for raw in () if isinstance(run, Damage) else run.records:
                    if raw[0] > after_id and raw[0] - one.first_id not in marks:
                        yield record_of(raw)
