"""Reads the bodies of the requests that leaderq packs: multi and multiRead."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

from kazoo.security import ACL, Id

from leaderq.testing.simulation.ensemble.tree import OPEN

_HEAD = struct.Struct("!iBii")  # the header of a part, and the length of the path after it
_HEADER_SIZE: Final = 9
_INT = struct.Struct("!i")
_END: Final = -1


def _packed_text(text: str) -> bytes:
    return _INT.pack(len(text)) + text.encode()


_OPEN_ACL: Final = b"".join(
    (_INT.pack(1), _INT.pack(OPEN[0].perms), *map(_packed_text, OPEN[0].id))
)


class MultiPart(NamedTuple):
    """One operation of a multi. ``number`` is the expected version or, for a create, the flags."""

    kind: int
    path: str
    data: bytes | None = None
    number: int = -1
    acl: tuple[ACL, ...] = OPEN


@lru_cache(maxsize=1024)
def operations(body: bytes) -> tuple[MultiPart, ...]:
    """The operations of a multi; the same bytes are read once."""
    return tuple(_operations(body))


def _operations(body: bytes) -> Iterator[MultiPart]:
    at = 0
    while True:
        kind, _, _, size = _HEAD.unpack_from(body, at) if len(body) - at > 9 else (_END, 1, -1, 0)
        if kind == _END:
            return
        at += _HEAD.size
        path = body[at : at + size].decode()
        at += size
        data: bytes | None = None
        acl = OPEN
        if kind in (1, 5):
            (size,) = _INT.unpack_from(body, at)
            at += 4
            if size >= 0:
                data = body[at : at + size]
                at += size
        if kind == 1:
            acl, at = _acl(body, at)
        (number,) = _INT.unpack_from(body, at)
        at += 4
        yield MultiPart(kind, path, data, number, acl)


@lru_cache(maxsize=1024)
def reads(body: bytes) -> tuple[tuple[int, str], ...]:
    """The kind and the path of each read in the body of a multiRead; cached by the bytes."""
    return tuple(_reads(body))


def _reads(body: bytes) -> Iterator[tuple[int, str]]:
    at, end = 0, len(body) - _HEADER_SIZE
    while at < end:
        kind, _, _, size = _HEAD.unpack_from(body, at)
        at += _HEAD.size
        yield kind, body[at : at + size].decode()
        at += size + 1  # whether to watch, which leaderq never asks for


def _acl(body: bytes, at: int) -> tuple[tuple[ACL, ...], int]:
    if body.startswith(_OPEN_ACL, at):
        return OPEN, at + len(_OPEN_ACL)
    (count,) = _INT.unpack_from(body, at)
    at += 4
    entries: list[ACL] = []
    for _ in range(count):
        (permissions,) = _INT.unpack_from(body, at)
        scheme, at = _text(body, at + 4)
        who, at = _text(body, at)
        entries.append(ACL(permissions, Id(scheme, who)))
    return tuple(entries), at


def _text(body: bytes, at: int) -> tuple[Any, int]:
    (size,) = _INT.unpack_from(body, at)
    at += 4
    if size < 0:
        return "", at
    return body[at : at + size].decode(), at + size
