"""The bytes of records, and the way through a segment full of them, past whatever is damaged.

::

    length u32 | crc32 u32 | id u64 | appended u64 (microseconds of the epoch) | flags u8,
    mark 3 bytes | payload

All little-endian. The checksum covers everything but itself: it is started with ``salt ^ length``
and runs over what follows it. The salt is made of the segment's name, so that bytes of another
segment, or of a journal kept as a payload in this one, are no records here. With the flag
:data:`EXPIRES` the payload begins with the instant of expiry, u64 microseconds of the epoch.

:func:`scan` returns runs of records, and the spans between them that hold none. The last span ends
where the bytes do, so only its reader can say whether it is a torn tail. Behind a damaged record
the next one is found by its mark, confirmed by id and checksum: no damage keeps what follows from
being read.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
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


Raw = tuple[int, int, int, bytes, int]
"""One record as it stands in a segment: id, appended (microseconds), flags, body, and where in the
data it ends.

A plain tuple, since the garbage collector stops looking at these: with a class of its own it takes
longer than all the rest.
"""


@dataclass(frozen=True)
class Parsed:
    """The records at the beginning of some bytes; ``used`` of these they take.

    What follows them is not a record if ``is_bad``, else the data ends there: within a record that
    takes ``needs`` bytes in all if its length can be believed.
    """

    records: list[Raw]
    used: int
    is_bad: bool
    needs: int


def salt_of(first_id: int, stamp: int) -> int:
    """What checksums in the segment of this name are started with."""
    return crc32(_ID.pack(first_id), stamp)


def encode(
    payloads: Sequence[bytes],
    *,
    first_id: int,
    appended_us: int,
    salt: int,
    expiries: Mapping[int, int] | None = None,
) -> bytes:
    """Records with consecutive ids; ``expiries`` are by position in ``payloads``."""
    parts: list[bytes] = []
    front, tail, checksum = _FRONT.pack, _TAIL.pack, crc32
    for number, payload in enumerate(payloads, first_id):
        mark = _MARK
        if expiries and (expires_us := expiries.get(number - first_id)) is not None:
            payload, mark = _EXPIRY.pack(expires_us) + payload, _MARK | EXPIRES
        rest = tail(number, appended_us, mark)
        length = len(payload)
        parts += (front(length, checksum(payload, checksum(rest, salt ^ length))), rest, payload)
    return b"".join(parts)


def parse(data: bytes, *, salt: int, expected_id: int, limit: int, at: int = 0) -> Parsed:
    """The records from ``at`` on, as far as they are whole and in order.

    ``expected_id`` is the least id the first may have, those after it follow without a gap; no
    record takes more than ``limit`` bytes.
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


# More does not stay in the processor's cache, and takes twice as long a record.
WINDOW: Final = 1 << 19
MAX_RECORD_BYTES: Final = 1 << 30

Reading = Callable[[int, int], bytes]
"""``(size, offset)`` to bytes; fewer than asked for at the end only."""


@dataclass(frozen=True)
class Run:
    """Records that follow each other, from offset ``start`` to ``end``."""

    start: int
    end: int
    first_id: int
    last_id: int
    records: list[Raw]


@dataclass(frozen=True)
class Spoilt:
    """Bytes that hold no record; ``is_tail`` if none follows them."""

    start: int
    end: int
    is_tail: bool


@dataclass(frozen=True)
class ScanRange:
    """Where to look: the bytes from ``start`` to ``end`` of the segment with this salt, whose next
    record has ``next_id`` or, if there were spoilt ones, a later one up to ``last_id``."""

    start: int
    end: int
    salt: int
    next_id: int
    last_id: int


def scan(read: Reading, span: ScanRange, window: int = WINDOW) -> Iterator[Run | Spoilt]:
    """All that lies in the span, in order.

    :raises OSError: of ``read``, but for EIO: what the disk cannot give back is spoilt.
    """
    reading = _tolerant(read)
    at, next_id, size = span.start, span.next_id, window
    while at < span.end:
        data = reading(min(size, span.end - at), at)
        parsed = parse(data, salt=span.salt, expected_id=next_id, limit=MAX_RECORD_BYTES)
        if parsed.records:
            last_id = parsed.records[-1][0]
            yield Run(at, at + parsed.used, parsed.records[0][0], last_id, parsed.records)
            next_id = last_id + 1
            at += parsed.used
            size = window
        if parsed.is_bad or (not parsed.records and at + parsed.needs > span.end):
            found = _next_record(reading, span, at + 1, next_id, window)
            yield Spoilt(at, found or span.end, found is None)
            at, size = found or span.end, window
        elif not parsed.records:
            size = max(window, parsed.needs)


def _tolerant(read: Reading) -> Reading:
    def reading(size: int, offset: int) -> bytes:
        try:
            data = read(size, offset)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            data = b""
        return data.ljust(size, b"\0")

    return reading


def _next_record(read: Reading, span: ScanRange, at: int, low_id: int, window: int) -> int | None:
    """Where the next whole record begins, if there is one."""
    while at < span.end:
        data = read(min(window, span.end - at), at)
        for head in likely_heads(data, low_id=low_id, high_id=span.last_id):
            if _is_record(read, span, at + head):
                return at + head
        if at + len(data) >= span.end:
            return None
        at += len(data) - HEAD_BYTES + 1  # a head across the border of two windows
    return None


def _is_record(read: Reading, span: ScanRange, at: int) -> bool:
    head = read(min(HEAD_BYTES, span.end - at), at)
    needs = parse(head, salt=span.salt, expected_id=0, limit=MAX_RECORD_BYTES)
    if needs.records:
        return True
    if needs.is_bad or at + needs.needs > span.end or needs.needs <= HEAD_BYTES:
        return False
    return bool(
        parse(read(needs.needs, at), salt=span.salt, expected_id=0, limit=MAX_RECORD_BYTES).records
    )


class JournalRecord(NamedTuple):
    """``appended_at`` and ``expires_at`` are seconds of the epoch, the latter ``None`` if it does
    not expire."""

    id: int
    payload: bytes
    appended_at: float
    expires_at: float | None = None


def record_of(raw: Raw) -> JournalRecord:
    record_id, appended_us, flags, body, _ = raw
    if not flags & EXPIRES:
        return JournalRecord(record_id, body, appended_us / 1e6)
    expires_us = _EXPIRY.unpack_from(body)[0]
    return JournalRecord(record_id, body[EXPIRY_BYTES:], appended_us / 1e6, expires_us / 1e6)
