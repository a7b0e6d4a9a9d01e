"""What an item's znode holds, byte for byte as Curator 5.x writes it, and what leaderq appends to
it (pure).

::

    int32 BE  0x00010001
    repeated: u8 0x01, int32 BE length (0 or more), the bytes of one item
    u8 0x02
    (leaderq only) anything: a note

Curator does not look at what follows the ``0x02``, and writes it again unchanged when it requeues;
there leaderq keeps its :class:`~leaderq.queues.wire.payload.Note`. A znode whose data begins with
``1f 8b`` is one gzip member around all this (Curator's option since 5.8.0); it is always
understood, and written when asked for.
"""

from __future__ import annotations

import gzip
import json
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields

from leaderq.base.arguments import LAST_MS
from leaderq.errors import CorruptItem

_MARK = b"leaderq:"
MAX_TEXT = 2000
"""Characters kept of an error's text."""


@dataclass(frozen=True, slots=True)
class Note:
    """What leaderq notes of an item, all of it optional. Times are milliseconds since the epoch;
    numbers that count nothing and are no times are left out when a note is read.

    ``attempt``: how often the item was given to a consumer and failed. ``enqueued_ms``: when the
    item was first put, if this is not its first znode. ``not_before_ms``: a consumer of leaderq
    leaves it alone until then (Java does not know of it). ``trace``: the context of the span that
    put it, as W3C's ``traceparent``, if that was traced.

    On dead letters also: ``reason`` (``attempts``, ``corrupt``, ``died``), ``error`` (type and
    text), ``origin`` (the name it had), ``died_ms``, and ``raw``: the one item is the znode's whole
    former data, which could not be read.
    """

    attempt: int = 0
    enqueued_ms: int | None = None
    not_before_ms: int | None = None
    trace: str | None = None
    reason: str | None = None
    error: str | None = None
    origin: str | None = None
    died_ms: int | None = None
    raw: bool = False

    def packed(self) -> bytes:
        said = {name: value for name, value in asdict(self).items() if value != _DEFAULTS[name]}
        if self.error is not None:
            said["error"] = self.error[:MAX_TEXT]
        text = json.dumps(said, ensure_ascii=False, separators=(",", ":"))
        return _MARK + text.encode(errors="replace")  # an error's text may hold lone surrogates

    @classmethod
    def read(cls, data: bytes) -> Note | None:
        """Return the note in ``data``, the bytes after a frame; ``None`` if they are not a note of
        ours.
        """
        if not data.startswith(_MARK):
            return None
        try:
            said = json.loads(data[len(_MARK) :])
        except (ValueError, RecursionError):
            return None
        if not isinstance(said, dict):
            return None
        found = {name: said[name] for name, kind in _KINDS if type(said.get(name)) is kind}
        return cls(**{name: one for name, one in found.items() if _is_sane(one)})


def _is_sane(value: object) -> bool:
    """Whether it is no number, or one that counts something or is a time."""
    return not isinstance(value, int) or 0 <= value <= LAST_MS


_TYPES: dict[str, type] = {"int": int, "str": str, "bool": bool}
_KINDS = [(field.name, _TYPES[str(field.type).partition(" ")[0]]) for field in fields(Note)]
_DEFAULTS = asdict(Note())

VERSION = 0x00010001
_VERSION = struct.Struct(">I")
_ITEM = struct.Struct(">Bi")
_ITEM_CODE, _END_CODE = 1, 2
_END = bytes((_END_CODE,))
_VERSION_BYTES = _VERSION.pack(VERSION)
_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31  # zlib's word for a gzip header and its checksum
MAX_PLAIN_BYTES = 64 * 1024 * 1024
"""Bytes that may come out of one znode's gzip; a megabyte of it could hold a thousand times as
much, and fill the memory.
"""
_LEAST = _VERSION.size + len(_END)


@dataclass(slots=True)
class Payload:
    """The items of one znode, and the note after them. An unchanging value."""

    items: Sequence[bytes]
    note: Note | None = None


def encode(items: Iterable[bytes], note: Note | None = None, *, compress: bool = False) -> bytes:
    parts = [_VERSION_BYTES]
    for item in items:
        parts += (_ITEM.pack(_ITEM_CODE, len(item)), item)
    parts += (_END, b"" if note is None else note.packed())
    data = b"".join(parts)  # one copy: it may be large
    return compressed(data) if compress else data


def decode(data: bytes) -> Payload:
    """Parse a znode's data.

    :raises CorruptItem: wrong version, unknown code, negative length, or an end too early; the
        message says at which byte.
    """
    data = plain(data)
    if len(data) < _LEAST:
        raise CorruptItem(
            f"an item of {len(data)} bytes is shorter than the shortest frame ({_LEAST} bytes)"
        )
    if not data.startswith(_VERSION_BYTES):
        raise CorruptItem(
            f"an item begins with {data[:4].hex()}, and Curator's frame with {VERSION:08x}"
        )
    items: list[bytes] = []
    at, end = _VERSION.size, len(data)
    while at < end and data[at] == _ITEM_CODE:
        begin = at + _ITEM.size
        if begin > end:
            raise CorruptItem(f"an item of {end} bytes ends within the length at byte {at + 1}")
        length: int = _ITEM.unpack_from(data, at)[1]
        if length < 0 or begin + length > end:
            what = f"length {length} at byte {at + 1} of an item, and {end - begin} bytes follow"
            raise CorruptItem(what)
        items.append(data[begin : begin + length])
        at = begin + length
    if at >= end:
        raise CorruptItem(f"an item of {end} bytes ends without the code {_END_CODE:#04x}")
    if data[at] != _END_CODE:
        raise CorruptItem(f"unknown code {data[at]:#04x} at byte {at} of an item")
    return Payload(items, Note.read(data[at + 1 :]) if at + 1 < end else None)


def compressed(data: bytes) -> bytes:
    """As Curator compresses: one gzip member; equal data returns equal bytes."""
    return gzip.compress(data, mtime=0)


def is_compressed(data: bytes) -> bool:
    return data.startswith(_GZIP)


def plain(data: bytes) -> bytes:
    """The data inside its gzip members, if it has any; as in Java, bytes after them are ignored.

    :raises CorruptItem: the data begins as gzip and is not gzip, ends too early, or holds more than
        :data:`MAX_PLAIN_BYTES`.
    """
    if not data.startswith(_GZIP):
        return data
    parts: list[bytes] = []
    left = MAX_PLAIN_BYTES
    while data.startswith(_GZIP):
        member = zlib.decompressobj(wbits=_GZIP_WINDOW)
        try:
            parts.append(member.decompress(data, left + 1))
        except zlib.error as exc:
            raise CorruptItem(f"an item begins as gzip and cannot be decompressed: {exc}") from exc
        left -= len(parts[-1])
        if left < 0:
            raise CorruptItem(f"an item begins as gzip and holds more than {MAX_PLAIN_BYTES} bytes")
        if not member.eof:
            raise CorruptItem("an item begins as gzip and ends too early")
        data = member.unused_data
    return b"".join(parts)
