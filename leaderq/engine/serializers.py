"""Converts the values of a queue to bytes and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from leaderq.base.arguments import Problem, bytes_of, method_problem, wanted
from leaderq.errors import CorruptItem, told
from leaderq.threads.listeners import is_from_outside

T = TypeVar("T")


class QueueSerializer(Protocol[T]):
    """Converts values to bytes and back. Several threads may use one at the same time.

    A ``serialize`` that raises fails the ``put``; if ``deserialize`` raises, the item is corrupt,
    and is set aside.
    """

    def serialize(self, value: T) -> bytes:
        """The bytes of one value."""

    def deserialize(self, data: bytes) -> T:
        """The value of these bytes; ``None`` is allowed as a value."""


@dataclass(frozen=True)
class _OfType(Generic[T]):
    name: str
    types: tuple[type, ...]
    to_bytes: Callable[[Any], bytes]
    from_bytes: Callable[[bytes], T]

    def serialize(self, value: T) -> bytes:
        if not isinstance(value, self.types):
            wrong = f"takes {self.types[0].__name__}, not {type(value).__name__}"
            raise TypeError(f"a queue of {self.name} {wrong}; give it another serializer")
        return self.to_bytes(value)

    def deserialize(self, data: bytes) -> T:
        return self.from_bytes(data)


BYTES: QueueSerializer[bytes] = _OfType("BYTES", (bytes, bytearray, memoryview), bytes, bytes)
"""Bytes as they are."""
TEXT: QueueSerializer[str] = _OfType("TEXT", (str,), str.encode, bytes.decode)
"""``str`` as UTF-8."""
_as_json = partial(json.dumps, ensure_ascii=False, separators=(",", ":"))
JSON: QueueSerializer[Any] = _OfType(
    "JSON", (object,), lambda value: _as_json(value).encode(), json.loads
)
"""Whatever ``json`` can write, compact, in UTF-8."""


def serializer_problem(serializer: object) -> Problem:
    """Why this cannot be a serializer; ``None`` if it can."""
    wrong = method_problem("serializer", serializer, "serialize", "deserialize")
    if isinstance(serializer, type) or wrong:
        remedy = "BYTES, TEXT, JSON, or a QueueSerializer"
        return f"{wanted('serializer', serializer, False, remedy)}; {wrong or 'it is a class'}"
    return None


def value_of(serializer: QueueSerializer[T], data: bytes) -> T:
    """Return the value of these bytes.

    :raises CorruptItem: the serializer refuses them.
    """
    try:
        return serializer.deserialize(data)
    except BaseException as exc:
        if is_from_outside(exc):
            raise
        raise CorruptItem(f"the serializer refuses it: {told(exc)}") from exc


def unchanging(data: Any) -> bytes:
    """The bytes that a serializer returned, see :func:`~leaderq.base.arguments.bytes_of`."""
    if (found := bytes_of(data)) is None:
        raise TypeError(f"the serializer returned a {type(data).__name__}; it must return bytes")
    return found
