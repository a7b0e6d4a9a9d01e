"""Saves what a journal remembers beside its segments: which records are done with, and which ids
may have been given out. Deletes segments that are done with.

Two files are written in turn (see ``docs/design/journal.md``): a write torn by a crash damages one,
and the other is one save older.

Up to ``reserved`` ids may have been given out for records that were not yet forced to the disk.
After a crash of the *host* (the boot id differs), new ids begin after ``reserved``. It is 0 if each
item is synced before its id is told.

Order: first a damaged segment is renamed; then the cursor is saved without this segment and without
the segments to delete; then these are deleted. So after a crash no acknowledged record comes back,
and a file that is missing was not deleted by leaderq.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leaderq.producing.journal.disk import NO_SPACE, Disk, write_all
from leaderq.producing.journal.segments import BAD, AckBitmap, JournalParts, Segment
from leaderq.threads import primitives

log = logging.getLogger("leaderq.producing.journal")
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
NAMES: Final = ("cursor.0", "cursor.1")
_MAGIC: Final = b"lqjcur\r\n"
_VERSION: Final = 1
_FRONT: Final = struct.Struct("<8sHHIQI")
_BODY: Final = struct.Struct("<QQB16sI")
_SEGMENT: Final = struct.Struct("<QQQQBI")
_SEQUENCE: Final = struct.Struct("<Q")
_ALLOTTED: Final = 64 * 1024


@dataclass(frozen=True)
class Known:
    """What the cursor knows of one segment: its records and bytes at the time of the save."""

    first_id: int
    records: int
    size: int
    marks: AckBitmap
    damaged: bool


@dataclass(frozen=True)
class CursorState:
    """One saved state. The saves are numbered from 1 on; 0: there is none."""

    sequence: int = 0
    next_id: int = 1
    reserved: int = 0
    clean: bool = False
    boot_id: bytes = bytes(16)
    segments: dict[int, Known] = field(default_factory=dict)


def encode(body: bytes, sequence: int) -> bytes:
    crc = _checksum(body, sequence)
    return _FRONT.pack(_MAGIC, _VERSION, 0, len(body), sequence, crc) + body


def decode(data: bytes) -> CursorState | None:
    """Return the state in a slot; ``None`` if there is none, or it is torn or damaged."""
    if len(data) < _FRONT.size:
        return None
    magic, version, _, length, sequence, crc = _FRONT.unpack_from(data)
    body = data[_FRONT.size : _FRONT.size + length]
    is_ours = (magic, version, len(body)) == (_MAGIC, _VERSION, length)
    if not is_ours or _checksum(body, sequence) != crc:
        return None
    next_id, reserved, clean, boot_id, count = _BODY.unpack_from(body)
    segments, at = {}, _BODY.size
    for _ in range(count):
        first_id, records, size, front, damaged, bits = _SEGMENT.unpack_from(body, at)
        at += _SEGMENT.size
        marks = AckBitmap.unpack(front, body[at : at + bits])
        segments[first_id] = Known(first_id, records, size, marks, bool(damaged))
        at += bits
    return CursorState(sequence, next_id, reserved, bool(clean), boot_id, segments)


def _checksum(body: bytes, sequence: int) -> int:
    return zlib.crc32(body, zlib.crc32(_SEQUENCE.pack(sequence)))


def read_cursor(disk: Disk, directory: Path) -> tuple[CursorState, int]:
    """Return the newest state that was saved, and how many slots are missing, torn or damaged.

    :raises OSError: a slot cannot be read for another reason.
    """
    found = []
    for name in NAMES:
        try:
            fd = disk.open(directory / name)
        except FileNotFoundError:
            continue
        try:
            found.append(decode(disk.read(fd, 1 << 30, 0)))
        finally:
            disk.close(fd)
    whole = [slot for slot in found if slot is not None]
    newest = max(whole, key=lambda slot: slot.sequence, default=CursorState())
    return newest, len(NAMES) - len(whole)


def boot_id() -> bytes:
    """16 bytes that differ between two runs of the host; zeros where the system cannot tell."""
    try:
        return bytes.fromhex(_BOOT_ID.read_text().strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)


def set_aside(disk: Disk, path: Path) -> Path:
    """Rename a segment so that it is not taken for a segment any more; never overwrites another
    file. Returns the new path.
    """
    target, number = path.with_name(path.name + BAD), 1
    while target.exists():
        target, number = path.with_name(f"{path.name}.{number}{BAD}"), number + 1
    disk.rename(path, target)
    return target


class CursorWriter:
    """Writes states to the two slots in turn. Used by several threads; one saves at a time."""

    def __init__(self, parts: JournalParts, sequence: int) -> None:
        self._disk, self._directory, self._gate = parts.disk, parts.directory, parts.gate
        self._index, self._counters = parts.index, parts.counters
        self._saving = primitives.Lock()
        self._sequence = sequence
        self._boot_id = boot_id()
        self._saved = b""
        for name in NAMES:
            self._disk.close(self._opened(name))
        # Also renames and deletions of the recovery, before anything is deleted that relies on
        # them.
        self._disk.sync_directory(self._directory)

    def _opened(self, name: str) -> int:
        path = self._directory / name
        try:
            return self._disk.open(path, writable=True)
        except FileNotFoundError:
            fd = self._disk.create(path)
        try:
            write_all(self._disk, fd, bytes(_ALLOTTED), 0)  # forced out with the first save
        except OSError:
            self._disk.close(fd)
            raise
        return fd

    def save(self, *, clean: bool = False, without: Sequence[Segment] = ()) -> None:
        """Save which records are done with, if that has changed; overwrites the older slot.

        :raises OSError: the slot could not be written; the last save stands.
        """
        with self._saving:
            with self._gate:
                body = self._body(clean, without)
            if body == self._saved:
                return
            sequence = self._sequence + 1
            try:
                fd = self._opened(NAMES[sequence % len(NAMES)])
                try:
                    write_all(self._disk, fd, encode(body, sequence), 0)
                    self._disk.sync(fd)
                finally:
                    self._disk.close(fd)
            except OSError:
                self._counters.failed_cursor_saves += 1
                raise
            self._sequence, self._saved = sequence, body

    def _body(self, clean: bool, without: Sequence[Segment]) -> bytes:
        index = self._index
        segments = [one for one in index.segments if one not in without]
        parts = [_BODY.pack(index.next_id, index.reserved, clean, self._boot_id, len(segments))]
        for one in segments:
            records, size = one.extent  # at once, because records are being written
            bits = one.marks.packed_bits()
            told = (one.first_id, records, size, one.marks.front, one.damaged, len(bits))
            parts += (_SEGMENT.pack(*told), bits)
        return b"".join(parts)

    def tidy(self) -> None:
        """Delete segments that are done with, and save.

        :raises OSError: a file could not be deleted or saved; the next call tries again.
        """
        with self._gate:
            done = [segment for segment in self._index.segments if segment.is_done]
        for segment in done:
            if segment.damaged:
                self._set_aside(segment)
        done = [segment for segment in done if not segment.damaged]
        try:
            self.save(without=done)
        except OSError as error:
            # On a full disk only deleting makes room. After a crash before the save below,
            # acknowledged segments are missing. The last one stays: it tells the next id.
            done = [segment for segment in done if segment is not self._index.segments[-1]]
            if not done or error.errno not in NO_SPACE:
                raise
        for segment in done:
            self._disk.remove(segment.path)
            self._drop(segment)
            self._counters.deleted += 1
        self.save()

    def _set_aside(self, segment: Segment) -> None:
        try:
            target = set_aside(self._disk, segment.path)
        except FileNotFoundError:
            self._drop(segment)  # somebody deleted it, which was reported when it was read
            return
        self._disk.sync_directory(self._directory)
        self._drop(segment)
        self._counters.set_aside += 1
        log.warning(
            "damaged journal file kept, its sound records are done with file=%s kept_as=%s",
            segment.path.name,
            target,
        )

    def _drop(self, segment: Segment) -> None:
        with self._gate:
            self._index.replace(segment, None)
