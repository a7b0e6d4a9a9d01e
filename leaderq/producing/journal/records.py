"""The bytes of records (see ``docs/design/journal.md``), and the way through a segment full of
them, past whatever is damaged.

:func:`scan` returns runs of records, and the gaps between them, which hold none. The last gap ends
    where the bytes do, so only its reader can say whether it is a torn tail. After a damaged record
    the next record is found by its mark, and confirmed by id and checksum: so no damage keeps later
    records from being read.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
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
_LAST_US: Final = 2.0**63


class Expiring(bytes):
    """The body of a record that expires: its time (:func:`expiring`), and the payload."""

    __slots__ = ()


Entry = bytes
"""The body of a record that is to be written: the payload, or an :class:`Expiring`."""
Raw = tuple[int, int, int, bytes, int]
"""One record of a segment: id, appended (microseconds), flags, body, and the offset in the data at
which it ends. A plain tuple, because the garbage collector stops looking at these: a class of its
own costs more than all the rest.
"""


@dataclass(frozen=True)
class Parsed:
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


def parse(data: bytes, *, salt: int, expected_id: int, limit: int) -> Parsed:
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
        records.append((number, appended_us, flags, body, end))
        expected_id = number + 1
        at = end
    return Parsed(records, at, False, HEAD_BYTES)


def likely_heads(data: bytes, *, low_id: int, high_id: int) -> list[int]:
    """Return the offsets in ``data`` where a record with an id from ``low_id`` to ``high_id`` may
    begin.
    """
    found = []
    mark = data.find(_MARK_BYTES)
    while mark >= 0:
        at = mark - _MARK_AT
        if at >= 0 and low_id <= _ID.unpack_from(data, at + _ID_AT)[0] <= high_id:
            found.append(at)
        mark = data.find(_MARK_BYTES, mark + 1)
    return found


# A larger window leaves the processor's cache, and takes twice as long a record.
WINDOW: Final = 1 << 19
MAX_RECORD_BYTES: Final = 1 << 30

Reading = Callable[[int, int], bytes]
"""``(size, offset)`` to bytes; fewer than asked for at the end only."""


@dataclass(frozen=True)
class Run:
    """Records that follow each other without a gap, from offset ``start`` to ``end``."""

    start: int
    end: int
    first_id: int
    last_id: int
    records: list[Raw]


@dataclass(frozen=True)
class Gap:
    """Bytes that hold no record, and the first and the last id that are missing there, if any.
    ``is_tail``: no record follows, so nobody knows which ids are missing.
    """

    start: int
    end: int
    lost: tuple[int, int] | None
    is_tail: bool

    def damage(self, file: str) -> Damage:
        """Return this gap as a damage in the segment with this file name."""
        return Damage(file, "spoilt", self.start, self.end - self.start, self.lost)


@dataclass(frozen=True)
class ScanRange:
    """The range to search: the bytes from ``start`` to ``end`` of the segment with this salt. Its
    next record has ``next_id`` or, after damage, a later id up to ``last_id``.
    """

    start: int
    end: int
    salt: int
    next_id: int
    last_id: int


def scan(read: Reading, span: ScanRange) -> Iterator[Run | Gap]:
    """Yield all runs in the range, and the gaps between and after them, in order.

    :raises OSError: ``read`` raised it. Only EIO is not raised: bytes that the disk cannot return
        count as damaged.
    """
    reading = tolerant(read)
    at, next_id, size = span.start, span.next_id, WINDOW
    sound_to = at
    while at < span.end:
        data = reading(min(size, span.end - at), at)
        parsed = parse(data, salt=span.salt, expected_id=next_id, limit=MAX_RECORD_BYTES)
        if parsed.records:
            first_id, last_id = parsed.records[0][0], parsed.records[-1][0]
            if sound_to < at or next_id < first_id:
                lost = (next_id, first_id - 1) if next_id < first_id else None
                yield Gap(sound_to, at, lost, is_tail=False)
            yield Run(at, at + parsed.used, first_id, last_id, parsed.records)
            at, next_id, size = at + parsed.used, last_id + 1, WINDOW
            sound_to = at
        if parsed.is_bad or (not parsed.records and at + parsed.needs > span.end):
            found = _next_record(reading, span, at, next_id)
            if found is None:
                yield Gap(sound_to, span.end, None, is_tail=True)
                return
            at, size = found, WINDOW
        elif not parsed.records:
            size = max(WINDOW, parsed.needs)


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


def _next_record(read: Reading, span: ScanRange, at: int, low_id: int) -> int | None:
    """Return the offset of the next whole record, if there is one."""
    while at < span.end:
        data = read(min(WINDOW, span.end - at), at)
        for head in likely_heads(data, low_id=low_id, high_id=span.last_id):
            if _is_record(read, span, at + head):
                return at + head
        if at + len(data) >= span.end:
            return None
        at += len(data) - HEAD_BYTES + 1  # a head that spans two windows
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
    """A record as it is read. ``appended_at``, ``expires_at``: seconds since the epoch;
    ``expires_at`` is ``None`` if the record never expires.
    """

    id: int
    payload: bytes
    appended_at: float
    expires_at: float | None = None


def record_of(raw: Raw) -> JournalRecord:
    record_id, appended_us, flags, body, _ = raw
    if flags & EXPIRES:
        return _expiring_record(record_id, body, appended_us / 1e6)
    return JournalRecord(record_id, body, appended_us / 1e6)


def _expiring_record(record_id: int, body: bytes, appended_at: float) -> JournalRecord:
    expires_us = _EXPIRY.unpack_from(body)[0]
    return JournalRecord(record_id, body[EXPIRY_BYTES:], appended_at, expires_us / 1e6)


def expiring(payload: bytes, expires_us: int) -> Expiring:
    """Return the body of a record with this payload that expires then, in microseconds of the
    epoch.
    """
    return Expiring(_EXPIRY.pack(expires_us) + payload)


def size_of(entries: Sequence[Entry]) -> int:
    """How many bytes these take as records."""
    return HEAD_BYTES * len(entries) + sum(map(len, entries))


def unwritten(entry: Entry, record_id: int, appended_at: float) -> JournalRecord:
    """Return the record that an entry will become once it is written."""
    if isinstance(entry, Expiring):
        return _expiring_record(record_id, entry, appended_at)
    return JournalRecord(record_id, entry, appended_at)
