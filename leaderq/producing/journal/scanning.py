"""Goes through a segment's bytes with bounded memory, past whatever is spoilt.

Gives runs of records, and the spans between them that hold none. The last span ends where the bytes do, so only its reader
can say whether it is a torn tail. Behind a spoilt record the next one is found by its mark, confirmed by id and checksum:
nothing spoilt keeps what follows from being read.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from leaderq.producing.journal.record import HEAD_BYTES, Raw, likely_heads, parse

WINDOW: Final = 1 << 19  # more does not stay in the processor's cache, and takes twice as long a record
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
class Span:
    """Where to look: the bytes from ``start`` to ``end`` of the segment with this salt, whose next record has ``next_id``
    or, if there were spoilt ones, a later one up to ``last_id``."""

    start: int
    end: int
    salt: int
    next_id: int
    last_id: int


def scan(read: Reading, span: Span, window: int = WINDOW) -> Iterator[Run | Spoilt]:
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


def _next_record(read: Reading, span: Span, at: int, low_id: int, window: int) -> int | None:
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


def _is_record(read: Reading, span: Span, at: int) -> bool:
    head = read(min(HEAD_BYTES, span.end - at), at)
    needs = parse(head, salt=span.salt, expected_id=0, limit=MAX_RECORD_BYTES)
    if needs.records:
        return True
    if needs.is_bad or at + needs.needs > span.end or needs.needs <= HEAD_BYTES:
        return False
    return bool(parse(read(needs.needs, at), salt=span.salt, expected_id=0, limit=MAX_RECORD_BYTES).records)
