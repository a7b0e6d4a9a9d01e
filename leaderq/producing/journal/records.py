"""The bytes of records (see ``docs/design/journal.md``), and the way through a segment full of
them, past whatever is damaged.

After a damaged record the next one is found by its mark, and confirmed by id and checksum: so no
damage keeps later records from being read.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple
from zlib import crc32

from leaderq.producing.journal.policy import Damage

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
MAX_RECORD_BYTES: Final = 1 << 30
_LAST_US: Final = 2.0**63


class Expiring(bytes):
    """The body of a record that expires: its time (:func:`expiring`), and the payload."""

    __slots__ = ()


Entry = bytes
"""The body of a record that is to be written: the payload, or an :class:`Expiring`."""
Raw = tuple[int, int, int, bytes]
"""One record of a segment: id, appended (microseconds), flags, body. A plain tuple, because the
garbage collector stops looking at these: a class of its own costs more than all the rest.
"""


class Parsed(NamedTuple):
    """The records with which some bytes begin; they take the first ``used`` bytes. ``is_bad``: no
    record follows them. Otherwise the data ends within a record, which has ``needs`` bytes if its
    length is right.
    """

    records: list[Raw]
    used: int
    is_bad: bool
    needs: int


def microseconds(seconds: float) -> int:
    """Return a moment as a record has it, or the nearest that a record can have."""
    return int(min(max(0.0, seconds * 1e6), _LAST_US))  # in this order NaN is 0


def salt_of(first_id: int, stamp: int) -> int:
    """The start value of checksums in the segment with this first id and stamp."""
    return crc32(_ID.pack(first_id), stamp)


def encode(entries: Sequence[Entry], *, first_id: int, appended_us: int, salt: int) -> bytes:
    """Records with consecutive ids."""
    parts: list[bytes] = []
    front, tail, checksum = _FRONT.pack, _TAIL.pack, crc32
    for number, entry in enumerate(entries, first_id):
        rest = tail(number, appended_us, _MARK if type(entry) is bytes else _MARK | EXPIRES)
        length = len(entry)
        parts += (front(length, checksum(entry, checksum(rest, salt ^ length))), rest, entry)
    return b"".join(parts)


def parse(data: bytes, salt: int, expected_id: int = 0, *, limit: int = MAX_RECORD_BYTES) -> Parsed:
    """Return the records with which ``data`` begins, as far as they are whole and in order.

    The first record's id is ``expected_id`` or higher, and later ids follow without a gap. No
    record takes more than ``limit`` bytes.
    """
    records: list[Raw] = []
    at, size, unpack = 0, len(data), _HEAD.unpack_from
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
        records.append((number, appended_us, flags, body))
        expected_id = number + 1
        at = end
    return Parsed(records, at, False, HEAD_BYTES)


def likely_heads(data: bytes, ids: range) -> list[int]:
    """Return the offsets in ``data`` where a record with one of these ids may begin."""
    found = []
    mark = data.find(_MARK_BYTES)
    while mark >= 0:
        at = mark - _MARK_AT
        if at >= 0 and _ID.unpack_from(data, at + _ID_AT)[0] in ids:
            found.append(at)
        mark = data.find(_MARK_BYTES, mark + 1)
    return found


# A larger window leaves the processor's cache, and takes twice as long a record.
WINDOW: Final = 1 << 19

Reading = Callable[[int, int], bytes]
"""``(size, offset)`` to bytes; fewer than asked for at the end only."""


class Run(NamedTuple):
    """Records that follow each other without a gap, up to the offset ``end``."""

    end: int
    first_id: int
    last_id: int
    records: list[Raw]


def scan(
    read: Reading, *, file: str, salt: int, start: int, end: int, next_id: int
) -> Iterator[Run | Damage]:
    """Yield all runs between two offsets of a segment, and the damages between them, in order. The
    next record has ``next_id`` or, after damage, a later id.

    Bytes behind the last record are not yielded: only the caller can say whether they are a torn
    tail.

    :raises OSError: ``read`` raised it. Only EIO is not raised: bytes that the disk cannot return
        count as damaged.
    """
    reading = tolerant(read)
    at = sound_to = start
    size, most_id = WINDOW, next_id + end - start
    while at < end:
        records, used, is_bad, needs = parse(reading(min(size, end - at), at), salt, next_id)
        if records:
            first_id = records[0][0]
            if sound_to < at or next_id < first_id:
                lost = (next_id, first_id - 1) if next_id < first_id else None
                yield Damage(file, "spoilt", sound_to, at - sound_to, lost)
            at = sound_to = at + used
            next_id = records[-1][0] + 1
            yield Run(at, first_id, next_id - 1, records)
        if is_bad or at + needs > end:
            found = _next_record(reading, salt, at, end, range(next_id, most_id))
            if found is None:
                return
            at, needs = found, 0
        size = max(WINDOW, needs)


def tolerant(read: Reading) -> Reading:
    """Return a reading in which bytes that the disk cannot return are zeros."""

    def reading(size: int, offset: int) -> bytes:
        try:
            data = read(size, offset)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            data = b""
        return data.ljust(size, b"\0")

    return reading


def _next_record(read: Reading, salt: int, at: int, end: int, ids: range) -> int | None:
    """Return the offset of the next whole record, if there is one."""
    while at < end:
        data = read(min(WINDOW, end - at), at)
        for head in likely_heads(data, ids):
            if _is_record(read, salt, at + head, end):
                return at + head
        if at + len(data) >= end:
            return None
        at += len(data) - HEAD_BYTES + 1  # a head that spans two windows
    return None


def _is_record(read: Reading, salt: int, at: int, end: int) -> bool:
    found = parse(read(min(HEAD_BYTES, end - at), at), salt)
    if HEAD_BYTES < found.needs <= end - at:
        found = parse(read(found.needs, at), salt)
    return bool(found.records)


class JournalRecord(NamedTuple):
    """A record as it is read. ``appended_at``, ``expires_at``: seconds since the epoch;
    ``expires_at`` is ``None`` if the record never expires.
    """

    id: int
    payload: bytes
    appended_at: float
    expires_at: float | None = None


def record_of(raw: Raw) -> JournalRecord:
    record_id, appended_us, flags, body = raw
    if not flags & EXPIRES:
        return JournalRecord(record_id, body, appended_us / 1e6)
    expires_at = _EXPIRY.unpack_from(body)[0] / 1e6
    return JournalRecord(record_id, body[EXPIRY_BYTES:], appended_us / 1e6, expires_at)


def expiring(payload: bytes, expires_us: int) -> Expiring:
    """Return the body of a record with this payload that expires then, in microseconds of the
    epoch.
    """
    return Expiring(_EXPIRY.pack(expires_us) + payload)


def size_of(entries: Sequence[Entry]) -> int:
    """How many bytes these take as records."""
    return HEAD_BYTES * len(entries) + sum(map(len, entries))
