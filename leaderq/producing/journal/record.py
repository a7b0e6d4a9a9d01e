"""The bytes of records. Pure.

::

    length u32 | crc32 u32 | id u64 | appended u64 (microseconds of the epoch) | flags u8, mark 3 bytes | payload

All little-endian. The checksum covers everything but itself: it is started with ``salt ^ length`` and runs over what follows it.
The salt is made of the segment's name, so that bytes of another segment, or of a journal kept as a payload in this one, are no
records here. The mark lets a reader find the next record behind a spoilt one. With the flag :data:`EXPIRES` the payload begins with
the instant of expiry, u64 microseconds of the epoch.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from zlib import crc32

EXPIRES: Final = 0x01
_MARK: Final = 0x51A7C300
_MARK_MASK: Final = 0xFFFFFF00
_MARK_BYTES: Final = struct.pack("<I", _MARK)[1:]
_HEAD: Final = struct.Struct("<IIQQI")
_FRONT: Final = struct.Struct("<II")
_TAIL: Final = struct.Struct("<QQI")
_EXPIRY: Final = struct.Struct("<Q")
_ID: Final = struct.Struct("<Q")
_ID_AT: Final = 8
_MARK_AT: Final = 25
HEAD_BYTES: Final = _HEAD.size
EXPIRY_BYTES: Final = _EXPIRY.size


class Raw(NamedTuple):
    """One record as it stands in a segment; ``end`` is the offset behind it, from where the parsed data began."""

    id: int
    appended_us: int
    flags: int
    body: bytes
    end: int

    @property
    def payload(self) -> bytes:
        """What was appended."""
        return self.body[EXPIRY_BYTES:] if self.flags & EXPIRES else self.body

    @property
    def expires_us(self) -> int | None:
        """When it expires, if ever."""
        return int(_EXPIRY.unpack_from(self.body)[0]) if self.flags & EXPIRES else None


@dataclass(frozen=True)
class Parsed:
    """The records at the beginning of some bytes; ``used`` of these they take.

    What follows them is not a record if ``is_bad``, else the data ends there: within a record that takes ``needs`` bytes in all if
    its length can be believed.
    """

    records: list[Raw]
    used: int
    is_bad: bool
    needs: int


def salt_of(first_id: int, stamp: int) -> int:
    """What checksums in the segment of this name are started with."""
    return crc32(_ID.pack(first_id), stamp)


def encode(
    payloads: Sequence[bytes], *, first_id: int, appended_us: int, salt: int, expiries: Mapping[int, int] | None = None
) -> bytes:
    """Records with consecutive ids; ``expiries`` are by position in ``payloads``."""
    parts: list[bytes] = []
    front, tail = _FRONT.pack, _TAIL.pack
    number = first_id
    for payload in payloads:
        flags = 0
        if expiries and (expires_us := expiries.get(number - first_id)) is not None:
            payload, flags = _EXPIRY.pack(expires_us) + payload, EXPIRES
        rest = tail(number, appended_us, _MARK | flags)
        length = len(payload)
        parts += (front(length, crc32(payload, crc32(rest, salt ^ length))), rest, payload)
        number += 1
    return b"".join(parts)


def parse(data: bytes, *, salt: int, expected_id: int, limit: int, at: int = 0) -> Parsed:
    """The records from ``at`` on, as far as they are whole and in order.

    ``expected_id`` is the least id the first may have, those after it follow without a gap; no record takes more than ``limit`` bytes.
    """
    records: list[Raw] = []
    size, unpack = len(data), _HEAD.unpack_from
    while at + HEAD_BYTES <= size:
        length, crc, number, appended_us, mark = unpack(data, at)
        start = at + HEAD_BYTES
        end = start + length
        is_next = number == expected_id if records else number >= expected_id
        if mark & _MARK_MASK != _MARK or not is_next or end - at > limit:
            return Parsed(records, at, True, 0)
        if end > size:
            return Parsed(records, at, False, end - at)
        body = data[start:end]
        if crc32(body, crc32(data[at + _ID_AT : start], salt ^ length)) != crc:
            return Parsed(records, at, True, 0)
        flags = mark & ~_MARK_MASK
        if flags & EXPIRES and length < EXPIRY_BYTES:
            return Parsed(records, at, True, 0)
        records.append(Raw(number, appended_us, flags, body, end))
        expected_id = number + 1
        at = end
    return Parsed(records, at, False, HEAD_BYTES)


def likely_heads(data: bytes, *, low_id: int, high_id: int) -> list[int]:
    """Offsets in ``data`` where the head of a record with an id in this range may be."""
    found = []
    mark = data.find(_MARK_BYTES)
    while mark >= 0:
        at = mark - _MARK_AT
        if at >= 0 and low_id <= _ID.unpack_from(data, at + _ID_AT)[0] <= high_id:
            found.append(at)
        mark = data.find(_MARK_BYTES, mark + 1)
    return found
