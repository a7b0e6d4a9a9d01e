"""The bytes of records. Pure.

::

    length u32 | crc32 u32 | id u64 | appended u64 (microseconds of the epoch) | flags u8, mark 3 bytes | payload

All little-endian. The checksum covers everything but itself: it is started with ``salt ^ length`` and runs over what follows
it. The salt is made of the segment's name, so that bytes of another segment, or of a journal kept as a payload in this one,
are no records here. The mark lets a reader find the next record behind a spoilt one. With the flag :data:`EXPIRES` the
payload begins with the instant of expiry, u64 microseconds of the epoch.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final
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


Raw = tuple[int, int, int, bytes, int]
"""One record as it stands in a segment: id, appended (microseconds), flags, body, and where in the data it ends.

A plain tuple, since the garbage collector stops looking at these: with a class of its own it takes longer than all the rest.
"""


def opened_body(flags: int, body: bytes) -> tuple[bytes, int | None]:
    """What was appended, and the microsecond at which it expires, if ever."""
    return (body[EXPIRY_BYTES:], int(_EXPIRY.unpack_from(body)[0])) if flags & EXPIRES else (body, None)


@dataclass(frozen=True)
class Parsed:
    """The records at the beginning of some bytes; ``used`` of these they take.

    What follows them is not a record if ``is_bad``, else the data ends there: within a record that takes ``needs`` bytes in
    all if its length can be believed.
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
    if expiries:
        return _encode_expiring(payloads, expiries, first_id, appended_us, salt)
    parts: list[bytes] = []
    front, tail, checksum, mark = _FRONT.pack, _TAIL.pack, crc32, _MARK
    number = first_id
    for payload in payloads:
        rest = tail(number, appended_us, mark)
        length = len(payload)
        parts += (front(length, checksum(payload, checksum(rest, salt ^ length))), rest, payload)
        number += 1
    return b"".join(parts)


def _encode_expiring(
    payloads: Sequence[bytes], expiries: Mapping[int, int], first_id: int, appended_us: int, salt: int
) -> bytes:
    parts: list[bytes] = []
    for position, payload in enumerate(payloads):
        expires_us = expiries.get(position)
        body = payload if expires_us is None else _EXPIRY.pack(expires_us) + payload
        rest = _TAIL.pack(first_id + position, appended_us, _MARK if expires_us is None else _MARK | EXPIRES)
        parts += (_FRONT.pack(len(body), crc32(body, crc32(rest, salt ^ len(body)))), rest, body)
    return b"".join(parts)


def parse(data: bytes, *, salt: int, expected_id: int, limit: int, at: int = 0) -> Parsed:
    """The records from ``at`` on, as far as they are whole and in order.

    ``expected_id`` is the least id the first may have, those after it follow without a gap; no record takes more than
    ``limit`` bytes.
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
        records.append((number, appended_us, flags, body, end))
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
