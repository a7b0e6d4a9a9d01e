"""Saves the cursor, and lets go of segments that are done with: deletes the sound ones, sets aside the damaged ones.

Order: a damaged segment is renamed, then the cursor is saved without it and without those to delete, then these are deleted.
So after a crash at any point no record comes back that was done with when the cursor was saved, and a file that is missing
was not deleted by us.
"""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from pathlib import Path

from leaderq.producing.journal.counters import Counters
from leaderq.producing.journal.cursor import Cursor, CursorFile, Known
from leaderq.producing.journal.disk import Disk
from leaderq.producing.journal.segment import Segment
from leaderq.producing.journal.segment_header import BAD
from leaderq.producing.journal.shelf import Shelf

log = logging.getLogger("leaderq.producing.journal")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> bytes:
    """16 bytes that differ between two runs of the host; zeros where the system cannot tell."""
    try:
        return bytes.fromhex(_BOOT_ID.read_text().strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)


def set_aside(disk: Disk, path: Path) -> Path:
    """Rename a segment so that nobody takes it for one; never over another."""
    target, number = path.with_name(path.name + BAD), 1
    while target.exists():
        target, number = path.with_name(f"{path.name}.{number}{BAD}"), number + 1
    disk.rename(path, target)
    return target


class Keeper:
    """Used by several threads; one saves at a time."""

    def __init__(
        self, disk: Disk, directory: Path, gate: threading.Lock, shelf: Shelf, counters: Counters, *, sequence: int
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._gate = gate
        self._shelf = shelf
        self._counters = counters
        self._file = CursorFile(disk, directory)
        self._saving = threading.Lock()
        self._sequence = sequence
        self._boot_id = boot_id()
        self._saved: bytes = b""
        self.next_id: Callable[[], int] = lambda: 1
        self.forget: Callable[[Segment], None] = lambda _: None
        self.reserved = 0

    def save(self, *, clean: bool = False, without: list[Segment] | None = None) -> None:
        """Write down what is done with, if that has changed.

        :raises OSError: it could not be written; what was saved before stands.
        """
        with self._saving:
            with self._gate:
                state = self._state(clean, without or [])
                body = state.encode()
            if body == self._saved:
                return
            following = Cursor(self._sequence + 1, state.next_id, state.reserved, state.clean, state.boot_id, state.segments)
            try:
                self._file.save(following)
            except OSError:
                self._counters.failed_cursor_saves += 1
                raise
            self._sequence += 1
            self._saved = body
            self._counters.cursor_saves += 1

    def _state(self, clean: bool, without: list[Segment]) -> Cursor:
        segments = {
            segment.first_id: Known(segment.first_id, segment.records, segment.size, segment.marks, segment.damaged)
            for segment in self._shelf.segments
            if segment not in without
        }
        return Cursor(0, self.next_id(), self.reserved, clean, self._boot_id, segments)

    def tidy(self) -> None:
        """Let go of what is done with, and save.

        :raises OSError: something of it could not be done; the next call tries again.
        """
        with self._gate:
            done = self._shelf.done()
        for segment in done:
            if segment.damaged:
                self._set_aside(segment)
        done = [segment for segment in done if not segment.damaged]
        try:
            self.save(without=done)
        except OSError as error:
            # On a full disk only deleting makes room. After a crash before the save below what was acknowledged is missed.
            if not done or error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
        for segment in done:
            self._disk.remove(segment.path)
            self._let_go(segment)
            self._counters.deleted += 1
        self.save()

    def _set_aside(self, segment: Segment) -> None:
        try:
            target = set_aside(self._disk, segment.path)
        except FileNotFoundError:
            self._let_go(segment)  # somebody deleted it, which was told when it was read
            return
        self._disk.sync_directory(self._directory)
        self._let_go(segment)
        self._counters.set_aside += 1
        log.warning(
            "journal: %s was damaged; all that is sound in it is done with, and it is kept as %s", segment.path.name, target
        )

    def _let_go(self, segment: Segment) -> None:
        self.forget(segment)
        with self._gate:
            self._shelf.remove(segment)

    def close(self) -> None:
        """Close the cursor's files."""
        self._file.close()
