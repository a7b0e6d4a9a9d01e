"""The segments of a journal: the bytes with which a segment begins (see
``docs/design/journal.md``), and what is known of each in memory.

Ids within a segment follow each other without a gap, so a record's position is its id less the
first. Which records are done with (acknowledged, expired, lost) is kept as a count from the front,
and one bit for each later record, needed only where acknowledgements came out of order.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from leaderq.producing.journal.disk import Disk
from leaderq.producing.journal.policy import Damage
from leaderq.producing.journal.records import Run, salt_of, scan

MAGIC: Final = b"lqjrnl\r\n"
VERSION: Final = 1
_FIELDS: Final = struct.Struct("<8sHHIQQQQQ")
_CRC: Final = struct.Struct("<I")
HEADER_BYTES: Final = _FIELDS.size + _CRC.size
_NAME: Final = re.compile(r"(\d{20})-([0-9a-f]{8})\.seg")
BAD: Final = ".bad"


@dataclass(frozen=True)
class SegmentHeader:
    """The fields of a segment's header. ``previous_*``: those of the segment before, 0 if there was
    none. ``codec``: the :func:`codec_tag` of whoever wrote the payloads, 0 if it is not known.
    """

    first_id: int
    previous_first_id: int = 0
    previous_records: int = 0
    previous_bytes: int = 0
    created_us: int = 0
    version: int = VERSION
    codec: int = 0

    def encode(self) -> bytes:
        before = self.previous_first_id, self.previous_records, self.previous_bytes
        front = MAGIC, self.version, HEADER_BYTES, self.codec
        fields = _FIELDS.pack(*front, self.first_id, *before, self.created_us)
        return fields + _CRC.pack(zlib.crc32(fields))


def decode(data: bytes) -> SegmentHeader | None:
    """Return the header with which ``data`` begins; ``None`` if there is none, or it is damaged."""
    if len(data) < HEADER_BYTES or data[:8] != MAGIC:
        return None
    if zlib.crc32(data[: _FIELDS.size]) != _CRC.unpack_from(data, _FIELDS.size)[0]:
        return None
    _, version, _, codec, first, previous, records, size, created = _FIELDS.unpack_from(data)
    return SegmentHeader(first, previous, records, size, created, version, codec)


def codec_tag(name: str) -> int:
    """The four bytes of a segment's header that tell one codec's name from another's. Versions
    before 0.2 wrote 0 there, and do not look at it.
    """
    return zlib.crc32(name.encode()) if name else 0


def segment_name(first_id: int, stamp: int) -> str:
    """The file name of the segment that begins with this id; names sort as their ids do, up to the
    last possible one.

    The stamp is a number that a journal drew when it was new. It is in the name because the file's
    contents may be damaged.
    """
    return f"{first_id:020d}-{stamp:08x}.seg"


def parse_name(name: str) -> tuple[int, int] | None:
    """Return first id and stamp from a segment's file name; ``None`` for every other name,
    including those of segments set aside.
    """
    match = _NAME.fullmatch(name)
    return (int(match[1]), int(match[2], 16)) if match else None


def set_aside_id(name: str) -> int | None:
    """Return the first id of a segment that was set aside; ``None`` for every other name."""
    return int(name[:20]) if name.endswith(BAD) and name[:20].isdigit() else None


class AckBitmap:
    """Which records of one segment are marked. ``front``: the first position that is not marked."""

    __slots__ = ("_ahead", "_later", "front")

    def __init__(self, front: int = 0) -> None:
        self.front = front
        self._later = bytearray()
        """The digit 1 for each marked position, and 0 for every other; matters from the front on.
        Needed only where records are marked out of order."""
        self._ahead = 0  # how many are marked after the front

    @property
    def count(self) -> int:
        return self.front + self._ahead

    def __contains__(self, position: int) -> bool:
        return position < self.front or self._later[position : position + 1] == b"1"

    def add(self, position: int) -> bool:
        if position == self.front:
            self.front += 1
            self._absorb()
            return True
        if position in self:
            return False
        if (more := position + 1 - len(self._later)) > 0:
            self._later.extend(b"0" * max(more, len(self._later)))
        self._later[position] = ord("1")
        self._ahead += 1
        return True

    def add_range(self, first: int, last: int) -> int:
        """Mark the positions ``first`` to ``last``; return how many were not marked before."""
        if first > self.front:
            return sum(map(self.add, range(first, last + 1)))
        before, end = self.count, last + 1
        if end > self.front:
            self._ahead -= self._later.count(b"1", self.front, end)
            self.front = end
            self._absorb()
        return self.count - before

    def clip(self, end: int) -> None:
        self.front = min(self.front, end)
        del self._later[end:]
        self._ahead = self._later.count(b"1", self.front)
        self._absorb()

    def _absorb(self) -> None:
        """Move the front over positions that were marked ahead of it."""
        if self._ahead:
            front = self._later.find(b"0", self.front)
            front = len(self._later) if front < 0 else front
            self._ahead -= front - self.front
            self.front = front
        if not self._ahead and self._later:
            self._later = bytearray()

    def count_from(self, position: int) -> int:
        """How many positions from this one on are marked."""
        ahead = self._later.count(b"1", max(position, self.front)) if self._ahead else 0
        return max(0, self.front - position) + ahead

    def packed_bits(self) -> bytes:
        """Return a bit for each position, the lowest first."""
        if not self._ahead:
            return b""
        bits = int(self._later[::-1], 2)
        return zlib.compress(bits.to_bytes((len(self._later) + 7) // 8, "little"), 1)

    @classmethod
    def unpack(cls, front: int, packed: bytes) -> AckBitmap:
        """Return the bitmap with this front and the bits that :meth:`packed_bits` returned."""
        marks = cls(front)
        if packed:
            bits = int.from_bytes(zlib.decompress(packed), "little")
            marks._later = bytearray(f"{bits:b}".encode()[::-1])
            marks._ahead = marks._later.count(b"1", front)
            marks._absorb()
        return marks


class Segment:
    """What is known of one segment file; ``header`` is ``None`` if that is torn or damaged. Guarded
    by the journal's gate.
    """

    def __init__(
        self, path: Path, first_id: int, stamp: int, header: SegmentHeader | None, file_bytes: int
    ) -> None:
        self.path, self.first_id, self.stamp = path, first_id, stamp
        self.header, self.file_bytes = header, file_bytes
        """How large the file was when it was found."""
        self.extent = (0, HEADER_BYTES)
        """Its records and bytes: one value, so that no interrupt comes between the two."""
        self.marks = AckBitmap()
        self.damages: list[Damage] = []  # that were found when the journal was opened
        self.sealed = self.damaged = False
        self.codec = 0 if header is None else header.codec
        self.salt = salt_of(first_id, stamp)

    @property
    def records(self) -> int:
        return self.extent[0]

    @property
    def size(self) -> int:
        return self.extent[1]

    @property
    def last_id(self) -> int:
        """The id of the segment's last record; ``first_id - 1`` if it has no record."""
        return self.first_id + self.records - 1

    @property
    def open_records(self) -> int:
        return self.records - self.marks.count

    @property
    def is_done(self) -> bool:
        """Whether no record of the segment is needed any more, and none will be added."""
        return self.sealed and self.marks.count >= self.records

    def mark(self, first_id: int, last_id: int) -> int:
        """Mark these records as done with; return how many were not marked before."""
        return self.marks.add_range(first_id - self.first_id, last_id - self.first_id)

    @contextmanager
    def scan(
        self, disk: Disk, end: int, *, after: tuple[int, int] = (0, HEADER_BYTES)
    ) -> Iterator[Iterator[Run | Damage]]:
        """The records and damages in the file behind this extent, up to the offset ``end``. The
        file is open within the block: a collected generator would close it where no error is heard.

        :raises OSError: other than an input/output error.
        """
        records, start = after
        with disk.opened(self.path) as fd:
            yield scan(
                partial(disk.read, fd),
                file=self.path.name,
                salt=self.salt,
                start=start,
                end=end,
                next_id=self.first_id + records,
            )
