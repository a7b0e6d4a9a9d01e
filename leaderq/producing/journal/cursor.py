"""What a journal remembers beside its segments: which records are done with, and which ids may have been given out.

Pure, but for :class:`CursorFile`. Two files are written in turn, each with a sequence number and a checksum of the whole: a
write torn by a crash spoils one, and the other is one save older. Two files rather than two slots of one: the marks have no
largest size, and a slot may grow without moving the other. Each begins with room allotted, so that a full disk does not stop
the saving that frees it.

::

    magic 8 | version u16 | 0 u16 | bytes of the body u32 | sequence u64 | crc32 of body and sequence u32 | body
    body: next id u64 | reserved u64 | clean u8 | boot id 16 | segments u32 | segments x
          (first id u64 | records u64 | bytes u64 | front u64 | damaged u8 | bytes of bits u32 | bits)

Up to ``reserved`` ids may have been given out for records that were not yet forced to the disk. After the *host* crashed
(the boot id differs) ids go on behind it, so that none is given twice. It is 0 if each item is synced before its id is told.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leaderq.producing.journal.disk import Disk, write_all
from leaderq.producing.journal.marks import Marks

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
    """What the cursor holds of one segment: records and bytes as they were when it was saved."""

    first_id: int
    records: int
    size: int
    marks: Marks
    damaged: bool


@dataclass(frozen=True)
class Cursor:
    """One saved state."""

    sequence: int = 0
    next_id: int = 1
    reserved: int = 0
    clean: bool = False
    boot_id: bytes = bytes(16)
    segments: dict[int, Known] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The bytes of a slot."""
        parts = [_BODY.pack(self.next_id, self.reserved, self.clean, self.boot_id, len(self.segments))]
        for known in self.segments.values():
            bits = known.marks.packed_bits()
            parts.append(
                _SEGMENT.pack(known.first_id, known.records, known.size, known.marks.front, known.damaged, len(bits))
            )
            parts.append(bits)
        body = b"".join(parts)
        return _FRONT.pack(_MAGIC, _VERSION, 0, len(body), self.sequence, _checksum(body, self.sequence)) + body


def decode(data: bytes) -> Cursor | None:
    """The state in a slot; ``None`` if there is none, or it is torn or spoilt."""
    if len(data) < _FRONT.size:
        return None
    magic, version, _, length, sequence, crc = _FRONT.unpack_from(data)
    body = data[_FRONT.size : _FRONT.size + length]
    if magic != _MAGIC or version != _VERSION or len(body) != length or _checksum(body, sequence) != crc:
        return None
    next_id, reserved, clean, boot_id, count = _BODY.unpack_from(body)
    segments, at = {}, _BODY.size
    for _ in range(count):
        first_id, records, size, front, damaged, bits = _SEGMENT.unpack_from(body, at)
        at += _SEGMENT.size
        segments[first_id] = Known(first_id, records, size, Marks.unpack(front, body[at : at + bits]), bool(damaged))
        at += bits
    return Cursor(sequence, next_id, reserved, bool(clean), boot_id, segments)


def newest(slots: list[Cursor | None]) -> Cursor | None:
    """The state that was saved last."""
    return max((slot for slot in slots if slot is not None), key=lambda slot: slot.sequence, default=None)


def _checksum(body: bytes, sequence: int) -> int:
    return zlib.crc32(body, zlib.crc32(_SEQUENCE.pack(sequence)))


def read_slots(disk: Disk, directory: Path) -> list[Cursor | None]:
    """Both slots, ``None`` for one that is missing, torn or spoilt.

    :raises OSError: one cannot be read for another reason.
    """
    found: list[Cursor | None] = []
    for name in NAMES:
        try:
            fd = disk.open(directory / name)
        except FileNotFoundError:
            found.append(None)
            continue
        try:
            found.append(decode(disk.read(fd, 1 << 30, 0)))
        finally:
            disk.close(fd)
    return found


class CursorFile:
    """Writes states to the two slots in turn. Used by one thread at a time."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._fds: list[int] = []
        try:
            for name in NAMES:
                self._fds.append(self._opened(directory / name))
        except OSError:
            self.close()
            raise
        disk.sync_directory(directory)

    def _opened(self, path: Path) -> int:
        try:
            return self._disk.open(path, writable=True)
        except FileNotFoundError:
            fd = self._disk.create(path)
        write_all(self._disk, fd, bytes(_ALLOTTED), 0)
        self._disk.sync(fd)
        return fd

    def save(self, cursor: Cursor) -> None:
        """Write over the older slot, and force it out.

        :raises OSError: the newer slot still holds what it held.
        """
        fd = self._fds[cursor.sequence % len(self._fds)]
        write_all(self._disk, fd, cursor.encode(), 0)
        self._disk.sync(fd)

    def close(self) -> None:
        """Close both files."""
        while self._fds:
            self._disk.close(self._fds.pop())
