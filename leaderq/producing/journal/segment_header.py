"""The first bytes of a segment file. Pure.

::

    magic 8 | version u16 | bytes of this header u16 | 0 u32 | first id u64 | previous: first id u64, records u64, bytes u64
    | created u64 (microseconds of the epoch) | crc32 of what stands before it u32

What is said of the previous segment is said when that one is complete. So it need not be read to know how many records it
holds, and one that was cut short later is known to be.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Final
from zlib import crc32

MAGIC: Final = b"lqjrnl\r\n"
VERSION: Final = 1
_FIELDS: Final = struct.Struct("<8sHHIQQQQQ")
_CRC: Final = struct.Struct("<I")
HEADER_BYTES: Final = _FIELDS.size + _CRC.size
_NAME: Final = re.compile(r"(\d{20})-([0-9a-f]{8})\.seg")
BAD: Final = ".bad"


@dataclass(frozen=True)
class SegmentHeader:
    """What the header says; ``previous_*`` are 0 if there was none."""

    first_id: int
    previous_first_id: int = 0
    previous_records: int = 0
    previous_bytes: int = 0
    created_us: int = 0
    version: int = VERSION

    def encode(self) -> bytes:
        """The header's bytes."""
        fields = _FIELDS.pack(
            MAGIC,
            self.version,
            HEADER_BYTES,
            0,
            self.first_id,
            self.previous_first_id,
            self.previous_records,
            self.previous_bytes,
            self.created_us,
        )
        return fields + _CRC.pack(crc32(fields))


def decode(data: bytes) -> SegmentHeader | None:
    """The header that ``data`` begins with; ``None`` if there is none, or it is spoilt."""
    if len(data) < HEADER_BYTES or data[:8] != MAGIC:
        return None
    if crc32(data[: _FIELDS.size]) != _CRC.unpack_from(data, _FIELDS.size)[0]:
        return None
    _, version, _, _, first, previous, records, size, created = _FIELDS.unpack_from(data)
    return SegmentHeader(first, previous, records, size, created, version)


def segment_name(first_id: int, stamp: int) -> str:
    """The file name of the segment that begins with this id; names sort as their ids do, up to the last there can be.

    The stamp is a number that a journal drew when it was new. It is in the name since what is in the file may be spoilt.
    """
    return f"{first_id:020d}-{stamp:08x}.seg"


def parse_name(name: str) -> tuple[int, int] | None:
    """First id and stamp of a segment's file name; ``None`` for every other name, set-aside segments among them."""
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2], 16)) if match else None


def set_aside_id(name: str) -> int | None:
    """The first id of a segment, or of a tail, that was set aside; ``None`` for every other name."""
    return int(name[:20]) if name.endswith(BAD) and name[:20].isdigit() else None
