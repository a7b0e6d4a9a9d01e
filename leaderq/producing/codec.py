"""Requests as bytes, for the journal and for measuring them.

:data:`PLAIN` keeps ``None``, ``bool``, ``int``, ``float``, ``str``, ``bytes`` and tuples, lists and dicts of these
exactly as they are. Nothing that it reads can run code. A subclass (a named tuple) comes back as the plain type. Anything
else needs a :class:`Codec` of the user's own; one of :mod:`leaderq.queues` (``JSON``) will do.

Layout: one letter for the type, then the value; lengths and counts are unsigned 32-bit, big-endian. A pair of bytes that
stands alone has a letter of its own, the length of the first, and both.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError  # noqa: N812 - an exception, named as one
from typing import Any, Protocol

from leaderq.errors import ConfigurationError, CorruptRecord

_LENGTH = Struct(">I")
_FLOAT = Struct(">d")
_PAIR_AT = -1  # of no value: it has a length although it stands alone
_CONSTANTS = {b"N": None, b"T": True, b"F": False}
_NAMES: dict[Any, bytes] = {None: b"N", True: b"T", False: b"F"}
_CONTAINERS = {b"(": tuple, b"[": list}


class Codec(Protocol):
    """Requests to bytes and back; ``deserialize(serialize(request))`` must equal the request, in another process too."""

    def serialize(self, value: Any) -> bytes:
        """``value`` as bytes."""

    def deserialize(self, data: bytes) -> Any:
        """The value of ``data``."""


class Plain:
    """See :data:`PLAIN`."""

    def serialize(self, value: Any) -> bytes:
        """The bytes.

        :raises ConfigurationError: a type that is not plain, with what to do about it.
        """
        if type(value) is bytes:
            return b"B" + value
        if type(value) is tuple and len(value) == 2:  # key and value: the usual request, at a tenth of the cost
            key, rest = value
            if type(key) is bytes and type(rest) is bytes:
                return b"P" + _LENGTH.pack(len(key)) + key + rest
        return b"".join(_written(value))

    def deserialize(self, data: bytes) -> Any:
        """The value.

        :raises CorruptRecord: :meth:`serialize` did not make these bytes.
        """
        kind = data[:1]
        if kind == b"B":
            return data[1:]
        try:
            if kind == b"P":
                begin, end = _extent(data, 0, _PAIR_AT)
                return data[begin:end], data[end:]
            value, end = _read(data, 0)
        except (IndexError, KeyError, ValueError, StructError, RecursionError) as exc:
            raise CorruptRecord(f"{len(data)} bytes beginning {data[:8]!r} are no plain value") from exc
        if end != len(data):
            raise CorruptRecord(
                f"{len(data)} bytes beginning {data[:8]!r} hold a plain value and {len(data) - end} bytes more"
            )
        return value


PLAIN = Plain()


def _written(value: Any, *, top: bool = True) -> Iterator[bytes]:
    if value is None or value is True or value is False:
        yield _NAMES[value]
    elif isinstance(value, bytes | bytearray | memoryview):
        yield from _sized(b"B", bytes(value), top)
    elif isinstance(value, str):
        yield from _sized(b"S", value.encode("utf-8", "surrogatepass"), top)
    elif isinstance(value, int):
        yield from _sized(b"I", b"%d" % value, top)
    elif isinstance(value, float):
        yield b"D" + _FLOAT.pack(value)
    elif isinstance(value, tuple | list):
        yield (b"(" if isinstance(value, tuple) else b"[") + _LENGTH.pack(len(value))
        for part in value:
            yield from _written(part, top=False)
    elif isinstance(value, dict):
        yield b"{" + _LENGTH.pack(len(value))
        for key, part in value.items():
            yield from _written(key, top=False)
            yield from _written(part, top=False)
    else:
        raise ConfigurationError(
            f"a request of type {type(value).__name__} cannot be kept as bytes; send bytes, str, numbers or tuples, lists and dicts of "
            "these, or give BufferedProducer a codec with serialize and deserialize"
        )


def _sized(kind: bytes, data: bytes, top: bool) -> Iterator[bytes]:
    yield kind if top else kind + _LENGTH.pack(len(data))  # what stands alone ends where the bytes end
    yield data


def _read(data: bytes, at: int) -> tuple[Any, int]:
    kind = data[at : at + 1]
    if kind in _CONSTANTS:
        return _CONSTANTS[kind], at + 1
    if kind == b"D":
        return _FLOAT.unpack_from(data, at + 1)[0], at + 9
    if kind in (b"B", b"S", b"I"):
        begin, end = _extent(data, at)
        return _of_bytes(kind, data[begin:end]), end
    count, at = _LENGTH.unpack_from(data, at + 1)[0], at + 5
    parts = []
    for _ in range(count * 2 if kind == b"{" else count):
        part, at = _read(data, at)
        parts.append(part)
    if kind == b"{":
        return dict(zip(parts[::2], parts[1::2], strict=True)), at
    return _CONTAINERS[kind](parts), at


def _extent(data: bytes, at: int, top: int = 0) -> tuple[int, int]:
    if at == top:
        return 1, len(data)
    begin = at + 5
    end = begin + _LENGTH.unpack_from(data, at + 1)[0]
    if end > len(data):
        raise ValueError("cut off")
    return begin, end


def _of_bytes(kind: bytes, data: bytes) -> Any:
    if kind == b"S":
        return data.decode("utf-8", "surrogatepass")
    return int(data) if kind == b"I" else data
