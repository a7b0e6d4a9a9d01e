"""Messages, and what ZooKeeper holds of them, byte for byte (pure).

A message's znode holds ``DQ1\\n``, the length of a header (uint32, big-endian), the header (JSON),
and the payload as it is. A claim's znode holds JSON: the state of the deliveries of one message.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from leaderq.base.arguments import (
    LAST_MS,
    Problem,
    Seconds,
    in_seconds,
    instance,
    is_text,
    is_time,
    require,
    require_finished,
    wanted,
)
from leaderq.dyno.layout import MAX_PRIORITY, escaped
from leaderq.errors import ConfigurationError, CorruptItem

_MAGIC = b"DQ1\n"
_LENGTH = struct.Struct(">I")
_as_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_decoded = json.JSONDecoder().decode  # json.loads takes twice as long for such short texts
_UNREADABLE = (KeyError, ValueError, ArithmeticError, AttributeError, TypeError, RecursionError)
_HEAD = len(_MAGIC) + _LENGTH.size
_SHORT = 16
"""Whatever the letters of an id are, so many can name a znode."""
T = TypeVar("T")
MAX_ERROR = 1000
"""Characters kept of the text of an error."""


class Unique(Enum):
    """How long nobody else may push a message with the same id."""

    DONE = "done"
    """It is acknowledged, dead or removed (and ``unique_s`` seconds after it was acknowledged)."""
    STARTED = "started"
    """It is first delivered. From then on it is not found by its id any more."""


_UNIQUE = {one.value: one for one in Unique}


def wrong_id(id: str) -> Problem:
    """What is wrong with an id that a user gave; ``None`` if nothing is."""
    try:
        escaped(id)
    except ConfigurationError as exc:
        return str(exc)
    return None


@dataclass(frozen=True, slots=True)
class DynoMessage:
    """A message, as it is pushed and as it is read again.

    ``id``: ``""`` lets the queue choose one (``<shard>/<number>``), which costs nothing; an id of
    your own is unique in the queue. ``timeout_s``: seconds until the first delivery is due.
    ``priority``: 0 (first) to 99. ``shard``: ``None`` leaves the choice to the queue's strategy.
    ``headers``: text that travels beside the payload. ``group``: messages of one group are
    delivered one at a time, in the order in which they were pushed. ``unique``, ``unique_s``: how
    long an id of yours stays reserved; see :class:`Unique`. ``expires_s``: seconds after which the
    message is not delivered any more, and becomes a dead letter (``expired``). ``place``: where a
    message that was read lies (``<shard>/<name>``); every method that takes an id also takes a
    place.

    :raises ConfigurationError: a value is not allowed; the error names all problems.
    """

    id: str = ""
    payload: bytes = b""
    timeout_s: Seconds = 0.0
    priority: int = 0
    shard: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    group: str | None = None
    unique: Unique = Unique.DONE
    unique_s: Seconds = 0.0
    expires_s: Seconds | None = None
    place: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        given: Any = self  # the value as it is, even if it is of a wrong type
        pairs = given.headers.items() if isinstance(given.headers, Mapping) else [(None, None)]
        are_texts = all(is_text(text) for pair in pairs for text in pair)
        is_priority = type(self.priority) is int and 0 <= self.priority <= MAX_PRIORITY
        names = {"shard": given.shard, "group": given.group}
        named = {name for name, text in names.items() if text is None or (is_text(text) and text)}
        times = {"timeout_s": self.timeout_s, "unique_s": self.unique_s}
        times |= {} if self.expires_s is None else {"expires_s": self.expires_s}
        is_unique = self.unique in Unique.__members__.values()
        can_stay = bool(self.id and self.unique is Unique.DONE) or not self.unique_s
        require(
            wanted("id", given.id, is_text(given.id), "a text"),
            wrong_id(given.id) if is_text(given.id) and self.id not in ("", self.place) else None,
            instance("payload", given.payload, bytes),
            wanted("priority", self.priority, is_priority, f"0 to {MAX_PRIORITY}"),
            wanted("headers", given.headers, are_texts, "texts by texts"),
            *(wanted(name, text, name in named, "a text, or None") for name, text in names.items()),
            *(wanted(name, value, is_time(value), "seconds") for name, value in times.items()),
            wanted("unique", self.unique, is_unique, "one of Unique"),
            wanted("unique_s", self.unique_s, can_stay, "it with an id and Unique.DONE"),
        )

    @property
    def text(self) -> str:
        """The payload as UTF-8 text."""
        return self.payload.decode()

    def json(self) -> Any:
        """The payload as JSON."""
        return json.loads(self.payload)


def _time(said: Any) -> int:
    """A number of a znode's: a time in ms, or a count. Raises ``ValueError`` if it is neither."""
    if not 0 <= (number := int(said)) <= LAST_MS:
        raise ValueError("a number is neither a time nor a count")
    return number


class Frame(NamedTuple):
    """The contents of a message's znode.

    ``enqueued_ms``: when the message was first pushed. ``body``: the reference of a payload in the
    body store. ``id``: ``""`` if the user gave none. ``expires_ms``: when it expires; 0: never.
    """

    payload: bytes
    id: str = ""
    enqueued_ms: int = 0
    headers: Mapping[str, str] = MappingProxyType({})
    group: str | None = None
    body: str | None = None
    unique: Unique = Unique.DONE
    unique_s: float = 0.0
    expires_ms: int = 0

    def packed(self) -> bytes:
        said = {
            "id": self.id,
            "headers": dict(self.headers),
            "group": self.group,
            "body": self.body,
        }
        header: dict[str, Any] = {"at": self.enqueued_ms}
        header |= {key: value for key, value in said.items() if value}
        if self.unique is not Unique.DONE:
            header["unique"] = self.unique.value
        elif self.unique_s:
            header["unique_s"] = self.unique_s
        if self.expires_ms:
            header["expires"] = self.expires_ms
        raw = _as_json(header).encode()
        return b"".join((_MAGIC, _LENGTH.pack(len(raw)), raw, self.payload))

    @classmethod
    def read(cls, data: bytes) -> Frame:
        """Undo :meth:`packed`, or ``CorruptItem``."""
        if not data.startswith(_MAGIC):
            raise CorruptItem(
                f"these {len(data)} bytes are not a message: they begin with {data[:8]!r}"
            )
        try:
            end = _HEAD + _LENGTH.unpack_from(data, len(_MAGIC))[0]
            header = _decoded(data[_HEAD:end].decode())
            at_ms, headers = _time(header.get("at", 0)), header.get("headers", {})
            id, group, body = header.get("id"), header.get("group"), header.get("body")
            "".join((id or "", group or "", body or "", *headers, *headers.values()))  # all texts?
            if id and len(id) > _SHORT and (problem := wrong_id(id)) is not None:
                raise ValueError(problem)  # or nobody could ever settle it
            unique = _UNIQUE[header.get("unique", "done")]
            unique_s = in_seconds("unique_s", header["unique_s"]) if "unique_s" in header else 0.0
            what = id or "", at_ms, headers, group or None, body or None, unique, unique_s
            return cls(data[end:], *what, _time(header.get("expires", 0)))
        except (*_UNREADABLE, ConfigurationError, struct.error) as exc:
            raise CorruptItem(f"these {len(data)} bytes are not a message: {exc}") from exc


class DeliveryState(NamedTuple):
    """The contents of a claim's znode.

    ``deliveries``: how often the message was handed out; ``failures``: how many of those deliveries
    failed. Each delivery writes both, and so does a consumer that takes a message over. ``member``:
    the consumer that has the message; ``""`` while it rests. ``until_ms``: the end of the rest, or
    of the lease (by its consumer's calendar, for display only). ``lease_ms``: how long the lease
    lasts. ``error``: that of the last failure. ``first_ms``: when the message was first delivered.
    """

    deliveries: int = 0
    failures: int = 0
    member: str = ""
    until_ms: int = 0
    error: str = ""
    first_ms: int = 0
    lease_ms: int = 0

    @property
    def has_started(self) -> bool:
        """Whether a consumer has had it, other than to look at it. (It may have been taken back
        before anybody saw it; then no delivery is counted.)
        """
        return self.deliveries > 0 or self.first_ms > 0

    def leased(
        self, member: str, now_ms: int, lease_s: float, *, is_delivery: bool = False
    ) -> DeliveryState:
        """This state, while ``member`` has the message for ``lease_s`` seconds; ``is_delivery``: it
        is handed out once more.
        """
        deliveries, failures, _, _, error, first_ms, _ = self
        if is_delivery:
            deliveries, first_ms = deliveries + 1, first_ms or now_ms
        lease_ms = int(lease_s * 1000)
        until_ms, lease_ms = now_ms + lease_ms, max(1, lease_ms)
        return DeliveryState(deliveries, failures, member, until_ms, error, first_ms, lease_ms)

    def packed(self) -> bytes:
        error = f',"e":{_as_json(self.error[:MAX_ERROR])}' if self.error else ""
        lease = f',"l":{self.lease_ms}' if self.member else ""
        said = (
            f'{{"n":{self.deliveries},"f":{self.failures},"u":{self.until_ms},'
            f'"t":{self.first_ms},"m":{_as_json(self.member)}{lease}{error}}}'
        )
        # The text of an error may hold surrogates, which cannot be encoded: each becomes a "?".
        return said.encode(errors="replace")

    @classmethod
    def read(cls, data: bytes) -> DeliveryState:
        """Parse the bytes that :meth:`packed` returned; unreadable data counts as a lease that is
        over.
        """
        try:
            said = json.loads(data)
            deliveries, failures, until_ms, first_ms, lease_ms = (
                _time(said.get(key, 0)) for key in "nfutl"
            )
            member, error = (str(said.get(key, "")) for key in "me")
            return cls(deliveries, failures, member, until_ms, error, first_ms, lease_ms)
        except _UNREADABLE:
            return cls()


def frame_of(data: bytes) -> Frame:
    """Parse a message's bytes; an empty frame if they are not a message."""
    try:
        return Frame.read(data)
    except CorruptItem:
        return Frame(b"")


def is_wanted(one: T, wanted: Callable[[T], object] | None) -> bool:
    """Whether the user's function says so; without one, everything is wanted."""
    if wanted is None:
        return True
    said = wanted(one)
    require_finished(said, "the function that says what is wanted")
    return bool(said)
