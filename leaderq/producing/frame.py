"""Many small messages in one: the *frame*, the value of one Kafka record whose acknowledgement
confirms them all. Pure.

Layout, big-endian::

    4 bytes   4C 51 46 31 ("LQF1")
    4 bytes   CRC-32 of all that follows
    4 bytes   number of messages
    each      8 bytes   time (milliseconds since the epoch, -1 for none)
              4 bytes   length of the key (-1 for none)
              4 bytes   length of the value (-1 for none)
              2 bytes   number of headers
              key, value, and each header as 2 + 4 bytes of lengths, name (UTF-8), value

All messages of a frame are of one partition, in order, so the order per key is that of the frames,
and then that within each.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from leaderq.errors import CorruptRecord

MAGIC = b"LQF1"
FRAME_HEADER = "leaderq-frame"
"""The header by which a record says that its value is a frame; its value is the number of messages,
in decimal."""

_HEAD = Struct(">4sII")
_PART = Struct(">qiiH")
_PAIR = Struct(">HI")
_COUNT = Struct(">I")
EMPTY_BYTES = _HEAD.size
"""Bytes of a frame without messages."""


class Packed(NamedTuple):
    """One message of a frame."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]] = ()
    timestamp_ms: int = -1

    @property
    def frame_bytes(self) -> int:
        """Bytes that it takes in a frame."""
        size = _PART.size + len(self.key or b"") + len(self.value or b"")
        for name, value in self.headers:
            size += _PAIR.size + len(name.encode()) + len(value)
        return size


def pack_frame(messages: Sequence[Packed]) -> bytes:
    """The frame of these messages, in this order."""
    parts = [_COUNT.pack(len(messages))]
    add = parts.append
    for key, value, headers, timestamp_ms in messages:
        add(
            _PART.pack(
                timestamp_ms,
                -1 if key is None else len(key),
                -1 if value is None else len(value),
                len(headers),
            )
        )
        if key:
            add(key)
        if value:
            add(value)
        for name, content in headers:
            raw = name.encode()
            add(_PAIR.pack(len(raw), len(content)) + raw + content)
    body = b"".join(parts)
    return MAGIC + _COUNT.pack(zlib.crc32(body)) + body


def unpack_frame(frame: bytes) -> list[Packed]:
    """The messages of a frame, in order.

    :raises CorruptRecord: it is no frame, or not what was packed.
    """
    if len(frame) < _HEAD.size or frame[:4] != MAGIC:
        raise CorruptRecord(
            f"a value of {len(frame)} bytes beginning {frame[:4]!r} is not a frame of leaderq "
            f"({MAGIC!r})"
        )
    _, checksum, count = _HEAD.unpack_from(frame)
    if zlib.crc32(memoryview(frame)[8:]) != checksum:
        raise CorruptRecord(f"a frame of {len(frame)} bytes does not match its checksum")
    messages: list[Packed] = []
    at = _HEAD.size
    for _ in range(count):
        timestamp_ms, key_bytes, value_bytes, headers = _PART.unpack_from(frame, at)
        at += _PART.size
        key = None if key_bytes < 0 else frame[at : at + key_bytes]
        at += max(0, key_bytes)
        value = None if value_bytes < 0 else frame[at : at + value_bytes]
        at += max(0, value_bytes)
        pairs: list[tuple[str, bytes]] = []
        for _ in range(headers):
            name_bytes, content_bytes = _PAIR.unpack_from(frame, at)
            at += _PAIR.size
            pairs.append(
                (
                    frame[at : at + name_bytes].decode(),
                    frame[at + name_bytes : at + name_bytes + content_bytes],
                )
            )
            at += name_bytes + content_bytes
        messages.append(Packed(key, value, pairs, timestamp_ms))
    return messages
