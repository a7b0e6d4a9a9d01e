"""What a journal remembers beside its segments: which records are done with, and which ids may have
been given out.

Two files are written in turn (see ``docs/design/journal.md``): a write torn by a crash damages one,
and the other is one save older.

Up to ``reserved`` ids may have been given out for records that were not yet forced to the disk.
After a crash of the *host* (the boot id differs), new ids begin after ``reserved``. It is 0 if each
item is synced before its id is told.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from leaderq.producing.journal.disk import Disk
from leaderq.producing.journal.segments import AckBitmap, Segment

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
NAMES: Final = ("cursor.0", "cursor.1")
_MAGIC: Final = b"lqjcur\r\n"
_VERSION: Final = 1
_FRONT: Final = struct.Struct("<8sHHIQI")
_BODY: Final = struct.Struct("<QQB16sI")
_SEGMENT: Final = struct.Struct("<QQQQBI")
_SEQUENCE: Final = struct.Struct("<Q")


class Known(NamedTuple):
    """What the cursor knows of one segment: its records and bytes at the time of the save."""

    first_id: int
    extent: tuple[int, int]
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


def body_of(front: tuple[int, int, bool, bytes], segments: Iterable[Segment]) -> bytes:
    """Return what is saved, except its number: the least free id, the reserved id, whether the
    journal is closed, the boot id, and the segments.
    """
    parts = []
    for one in segments:
        records, size = one.extent  # at once, because records are being written
        bits = one.marks.packed_bits()
        told = (one.first_id, records, size, one.marks.front, one.damaged, len(bits))
        parts += [_SEGMENT.pack(*told), bits]
    return b"".join((_BODY.pack(*front, len(parts) // 2), *parts))


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
        segments[first_id] = Known(first_id, (records, size), marks, bool(damaged))
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
        with suppress(FileNotFoundError), disk.opened(directory / name) as fd:
            found.append(decode(disk.read(fd, 1 << 30, 0)))
    whole = [slot for slot in found if slot is not None]
    newest = max(whole, key=lambda slot: slot.sequence, default=CursorState())
    return newest, len(NAMES) - len(whole)


def boot_id() -> bytes:
    """16 bytes that differ between two runs of the host; zeros where the system cannot tell."""
    try:
        return bytes.fromhex(_BOOT_ID.read_text().strip().replace("-", ""))
    except (OSError, ValueError):
        return bytes(16)
