"""Which letters of one partition were replayed: an offset, and the letters behind it that were
replayed out of turn (pure).

The offset is what the group has committed, so Kafka's own tools show it; it never passes a letter
that was left out. What was replayed behind one that was left out stands beside the offset, in the
*metadata* of the commit: ``replayed 3-5,9``, counted from the committed offset, or, where that is
shorter, ``replayed bits <base64 of a compressed bit field>``. So each letter is replayed once,
whatever was filtered in which order. An offset somebody resets with Kafka's tools has no metadata,
and says: from here on.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby

from leaderq.errors import CorruptRecord

MAX_NOTE = 4000
"""Characters; a broker takes 4096 (``offset.metadata.max.bytes``)."""

_RANGES, _BITS = "replayed ", "replayed bits "
_MAX_SPAN = 1 << 24


@dataclass(frozen=True)
class Replayed:
    """All letters before ``upto``, and those at ``beyond``, none of which is before it."""

    upto: int
    beyond: frozenset[int] = frozenset()

    def __contains__(self, offset: int) -> bool:
        return offset < self.upto or offset in self.beyond

    def note(self) -> str | None:
        """The metadata to commit with ``upto``; ``None`` if it would be longer than a broker takes."""
        if not self.beyond:
            return ""
        ranges = _RANGES + ",".join(_ranges(offset - self.upto for offset in self.beyond))
        if len(ranges) <= MAX_NOTE:
            return ranges
        bits = sum(1 << (offset - self.upto) for offset in self.beyond)
        data = zlib.compress(bits.to_bytes(bits.bit_length() // 8 + 1, "little"), 9)
        packed = _BITS + base64.b64encode(data).decode()
        return packed if len(packed) <= MAX_NOTE else None


def replayed(upto: int, note: str) -> Replayed:
    """What a committed offset and its metadata say; raises :class:`~leaderq.errors.CorruptRecord`
    for a note of ours gone bad.

    A note of anybody else's is none.
    """
    if not note.startswith(_RANGES):
        return Replayed(upto)
    try:
        ahead = list(_from_bits(note[len(_BITS) :]) if note.startswith(_BITS) else _from_ranges(note[len(_RANGES) :]))
    except (ValueError, binascii.Error, zlib.error) as exc:
        raise CorruptRecord(
            f"the metadata beside the committed offset {upto} is {note[:60]!r}, which leaderq did not write ({exc}); replay "
            "--from-start, or set the group's offset with kafka-consumer-groups --reset-offsets"
        ) from exc
    return Replayed(upto, frozenset(upto + each for each in ahead))


def _ranges(offsets: Iterable[int]) -> Iterator[str]:
    for _, group in groupby(enumerate(sorted(offsets)), key=lambda each: each[1] - each[0]):
        run = [offset for _, offset in group]
        yield f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0])


def _from_ranges(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, dash, last = part.partition("-")
        ends = int(first), int(last if dash else first)
        if ends[1] - ends[0] > _MAX_SPAN:
            raise ValueError(f"{part!r} is too wide")
        yield from range(ends[0], ends[1] + 1)


def _from_bits(text: str) -> Iterator[int]:
    expander = zlib.decompressobj()
    data = expander.decompress(base64.b64decode(text, validate=True), _MAX_SPAN // 8)
    if not expander.eof:
        raise ValueError("its compressed bits are cut off")
    yield from (8 * at + bit for at, byte in enumerate(data) for bit in range(8) if byte >> bit & 1)


class Passage:
    """One way through a partition: what has been passed on it so far, and what that makes of
    :class:`Replayed`.
    """

    def __init__(self, before: Replayed) -> None:
        self._beyond = set(before.beyond)
        self._next = before.upto
        self._left: int | None = None

    def passed(self, offset: int) -> None:
        """The letter at ``offset`` is replayed, or needs no replay."""
        self._next = offset + 1
        if self._left is not None:
            self._beyond.add(offset)

    def left(self, offset: int) -> None:
        """The letter at ``offset`` is left for another time."""
        self._next = offset + 1
        if self._left is None:
            self._left = offset

    def ended(self, end: int) -> None:
        """Nothing is left to be seen before ``end``."""
        self._next = max(self._next, end)

    def now(self) -> Replayed:
        """What has been replayed if it ends here."""
        if self._left is None:
            return Replayed(self._next, frozenset(offset for offset in self._beyond if offset >= self._next))
        return Replayed(self._left, frozenset(offset for offset in self._beyond if offset > self._left))
