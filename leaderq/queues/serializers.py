"""How the values of a queue become bytes and back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")


class QueueSerializer(Protocol[T]):
    """Both ways; an instance may be used by several threads at once.

    A ``serialize`` that raises fails the ``put``; a ``deserialize`` that raises makes the item a
    corrupt one, which is set aside.
    """

    def serialize(self, value: T) -> bytes:
        """The bytes of one value."""

    def deserialize(self, data: bytes) -> T:
        """The value in these bytes; ``None`` is a value like any other."""


@dataclass(frozen=True)
class _Bytes:
    def serialize(self, value: bytes) -> bytes:
        if not isinstance(value, bytes | bytearray | memoryview):
            raise TypeError(
                f"a queue of BYTES takes bytes, not {type(value).__name__}; give it serializer=TEXT"
                " or JSON"
            )
        return bytes(value)

    def deserialize(self, data: bytes) -> bytes:
        return data


@dataclass(frozen=True)
class _Text:
    def serialize(self, value: str) -> bytes:
        if not isinstance(value, str):
            raise TypeError(
                f"a queue of TEXT takes str, not {type(value).__name__}; give it serializer=BYTES"
                " or JSON"
            )
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        return data.decode()


@dataclass(frozen=True)
class _Json(Generic[T]):
    def serialize(self, value: Any) -> bytes:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()

    def deserialize(self, data: bytes) -> Any:
        return json.loads(data)


BYTES: QueueSerializer[bytes] = _Bytes()
"""Bytes as they are."""
TEXT: QueueSerializer[str] = _Text()
"""``str`` as UTF-8."""
JSON: QueueSerializer[Any] = _Json()
"""Whatever ``json`` can write, compact, in UTF-8."""


def unchanging(data: Any) -> bytes:
    """What a serializer gave, as it is now: a user's may give a buffer that it goes on using."""
    return data if type(data) is bytes else bytes(memoryview(data))
