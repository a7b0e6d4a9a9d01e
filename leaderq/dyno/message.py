"""Messages, and what ZooKeeper holds of them, byte for byte (pure).

A message's znode holds ``DQ1\\n``, the length of a header (uint32, big-endian), the header (JSON),
and the payload as it is. A claim's znode holds JSON: the state of the deliveries of one message.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from leaderq.dyno.layout import MAX_PRIORITY
from leaderq.errors import ConfigurationError, CorruptItem

_MAGIC = b"DQ1\n"
_LENGTH = struct.Struct(">I")
_HEAD = len(_MAGIC) + _LENGTH.size
MAX_ERROR = 1000
"""Characters kept of the text of an error."""


@dataclass(frozen=True, slots=True)
class Message:
    """What is pushed, and what comes out again.

    ``id``: ``""`` lets the queue choose one (``<shard>/<number>``), which costs nothing; an id of
    your own is unique in the queue. ``timeout_s``: seconds until it may be delivered first.
    ``priority``: 0 (first) to 99. ``shard``: ``None`` leaves the choice to the queue's strategy.
    ``headers``: text that travels beside the payload. ``group``: of the messages of one group at
    most one is in flight, in the order in which they were pushed.

    :raises ConfigurationError: a value that cannot be; all problems are named.
    """

    id: str = ""
    payload: bytes = b""
    timeout_s: float = 0.0
    priority: int = 0
    shard: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None

    def __post_init__(self) -> None:
        problems = []
        for what, value, kind in (("id", self.id, str), ("payload", self.payload, bytes)):
            if not isinstance(value, kind):
                problems.append(f"{what} of type {type(value).__name__}: give {kind.__name__}")
        if not _is_number(self.timeout_s) or not self.timeout_s >= 0:
            problems.append(f"timeout_s={self.timeout_s!r}: give 0 or more seconds")
        if type(self.priority) is not int or not 0 <= self.priority <= MAX_PRIORITY:
            problems.append(f"priority={self.priority!r}: give a whole number from 0 to {MAX_PRIORITY}")
        texts = (text for pair in self.headers.items() for text in pair)
        if not all(isinstance(text, str) for text in texts):
            problems.append(f"headers={self.headers!r}: give texts by texts")
        if problems:
            raise ConfigurationError(*problems)

    @property
    def text(self) -> str:
        """The payload as UTF-8 text."""
        return self.payload.decode()

    def json(self) -> Any:
        """The payload as JSON."""
        return json.loads(self.payload)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@dataclass(frozen=True, slots=True)
class Frame:
    """What the znode of a message holds. ``enqueued_ms``: when it was first pushed. ``body``: where
    the payload is, if not here. ``id``: ``""`` for one that the user did not give."""

    payload: bytes
    id: str = ""
    enqueued_ms: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    body: str | None = None

    def packed(self) -> bytes:
        """The bytes of the znode."""
        header: dict[str, Any] = {"at": self.enqueued_ms}
        for key, value in (("id", self.id), ("headers", dict(self.headers)), ("group", self.group), ("body", self.body)):
            if value:
                header[key] = value
        raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
        return b"".join((_MAGIC, _LENGTH.pack(len(raw)), raw, self.payload))

    @classmethod
    def read(cls, data: bytes) -> Frame:
        """Undo :meth:`packed`.

        :raises CorruptItem: these bytes are not a message.
        """
        if not data.startswith(_MAGIC):
            raise CorruptItem(f"these {len(data)} bytes are not a message: they begin with {data[:8]!r}")
        try:
            end = _HEAD + _LENGTH.unpack_from(data, len(_MAGIC))[0]
            header = json.loads(data[_HEAD:end])
            return cls(
                payload=data[end:],
                id=str(header.get("id", "")),
                enqueued_ms=int(header.get("at", 0)),
                headers=header.get("headers", {}),
                group=header.get("group"),
                body=header.get("body"),
            )
        except (ValueError, AttributeError, TypeError, RecursionError, struct.error) as exc:
            raise CorruptItem(f"these {len(data)} bytes are not a message: {exc}") from exc


@dataclass(frozen=True, slots=True)
class DeliveryState:
    """What the znode of a claim holds.

    ``deliveries``: how often the message was handed out; ``failures``: how many of those failed.
    Both are written by the delivery itself, or by who takes over. ``member``: whose it is; ``""``
    while it rests. ``until_ms``: the end of the lease, or of the rest. ``error``: of the last
    failure. ``first_ms``: of the first delivery.
    """

    deliveries: int = 0
    failures: int = 0
    member: str = ""
    until_ms: int = 0
    error: str = ""
    first_ms: int = 0

    def packed(self) -> bytes:
        """The bytes of the znode."""
        said: dict[str, Any] = {"n": self.deliveries, "f": self.failures, "u": self.until_ms}
        for key, value in (("m", self.member), ("e", self.error[:MAX_ERROR]), ("t", self.first_ms)):
            if value:
                said[key] = value
        # The text of an error may hold what is not text (surrogates): then a "?" stands there.
        return json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")

    @classmethod
    def read(cls, data: bytes) -> DeliveryState:
        """Undo :meth:`packed`; what cannot be read counts as a lease that is over."""
        try:
            said = json.loads(data)
            return cls(
                int(said.get("n", 0)),
                int(said.get("f", 0)),
                str(said.get("m", "")),
                int(said.get("u", 0)),
                str(said.get("e", "")),
                int(said.get("t", 0)),
            )
        except (ValueError, AttributeError, TypeError, RecursionError):
            return cls()
