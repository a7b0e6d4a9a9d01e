"""Which records of a segment are done with (acknowledged, expired, lost): a count from the front, a bit for each behind.

Pure. Takes an eighth of a byte for a record, and that only where acknowledgements came out of order. Numbers are positions
in the segment, from 0.
"""

from __future__ import annotations

import zlib


class Marks:
    """The marks of one segment. ``front``: all before this position are marked, and this one is not."""

    __slots__ = ("_ahead", "_bits", "front")

    def __init__(self, front: int = 0) -> None:
        self.front = front
        self._bits = bytearray()
        self._ahead = 0

    @property
    def count(self) -> int:
        """How many are marked."""
        return self.front + self._ahead

    def __contains__(self, position: int) -> bool:
        return position < self.front or self._is_set(position)

    def add(self, position: int) -> bool:
        """Mark one; gives whether it was not marked."""
        if position == self.front:
            self.front += 1
            self._absorb()
            return True
        if position in self:
            return False
        byte = position >> 3
        if byte >= len(self._bits):
            self._bits.extend(bytes(max(byte + 1 - len(self._bits), len(self._bits))))
        self._bits[byte] |= 1 << (position & 7)
        self._ahead += 1
        return True

    def add_up_to(self, end: int) -> int:
        """Mark all before ``end``; gives how many were not marked."""
        before = self.count
        if end > self.front:
            if self._ahead:
                self._ahead -= sum(map(self._is_set, range(self.front, end)))
            self.front = end
            self._absorb()
        return self.count - before

    def clip(self, end: int) -> None:
        """Forget marks from ``end`` on."""
        if self.front > end:
            self.front = end
        if self._ahead:
            del self._bits[(end + 7) >> 3 :]
            if end & 7 and end >> 3 < len(self._bits):
                self._bits[end >> 3] &= (1 << (end & 7)) - 1
            self._ahead = sum(map(self._is_set, range(self.front, end)))
            self._absorb()

    def _is_set(self, position: int) -> bool:
        byte = position >> 3
        return byte < len(self._bits) and bool(self._bits[byte] >> (position & 7) & 1)

    def _absorb(self) -> None:
        """Move the front over what was marked ahead of it."""
        if self._ahead:
            front = self.front
            while self._is_set(front):
                front += 1
            self._ahead -= front - self.front
            self.front = front
        if not self._ahead and self._bits:
            self._bits = bytearray()

    def packed_bits(self) -> bytes:
        """What stands ahead of the front, compressed; empty if nothing does."""
        return zlib.compress(bytes(self._bits), 1) if self._ahead else b""

    @classmethod
    def unpack(cls, front: int, packed: bytes) -> Marks:
        """The marks of a front and :meth:`packed_bits`."""
        marks = cls(front)
        if packed:
            marks._bits = bytearray(zlib.decompress(packed))
            ones = sum(byte.bit_count() for byte in marks._bits)
            marks._ahead = ones - sum(map(marks._is_set, range(front)))
            marks._absorb()
        return marks
