"""What is to be put, out of arguments or a stream (pure, but for reading the stream)."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from leaderq.errors import ConfigurationError

_CHUNK = 1 << 16
LONGEST = 4 << 20
"""Bytes of one line: four times what ZooKeeper takes by default; whatever is longer is not an item
but the wrong file.
"""


class Source(Protocol):
    """A binary stream that returns what has come, and does not wait for more."""

    def read1(self, size: int = -1, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Keys:
    """What an item's name says beside its number; which of them is needed depends on the kind of
    the queue. ``is_bare``: it is known to say nothing, as those that Java has requeued. The last
    three are for Dyno queues, whose messages may have all of it.
    """

    id: str | None = None
    priority: int | None = None
    due_ms: int | None = None
    is_bare: bool = False
    shard: str | None = None
    group: str | None = None
    headers: Mapping[str, str] | None = None

    @property
    def kind(self) -> str | None:
        """The kind of queue that has such a key."""
        said = {"id": self.id, "priority": self.priority, "delay": self.due_ms}
        kinds = [kind for kind, value in said.items() if value is not None]
        is_dyno = len(kinds) > 1 or self.shard or self.group or self.headers
        return "dyno" if is_dyno else next(iter(kinds), None)


@dataclass(frozen=True, slots=True)
class Entry:
    """One znode to be. ``number``: the line, or argument, that it began with, from 1."""

    number: int
    values: tuple[bytes, ...]
    keys: Keys


class BadEntry(Exception):  # one line of many: counted and told, the others go on
    """A line that says nothing that could be put."""


def pieces(
    source: Source, end: bytes, on_bytes: Callable[[int], object] = lambda _: None
) -> Iterator[list[bytes]]:
    """What stands before each ``end``, all that have come at a time; what follows the last one
    counts if there is anything.

    :raises ConfigurationError: one is longer than any item can be.
    """
    rest = bytearray()
    number = 0
    while chunk := source.read1(_CHUNK):
        on_bytes(len(chunk))
        rest += chunk
        if end in chunk:
            *whole, last = bytes(rest).split(end)
            rest = bytearray(last)
            number += len(whole)
            yield whole
        if len(rest) > LONGEST:
            raise ConfigurationError(
                f"item {number + 1} is longer than {LONGEST} bytes, and has no end yet; is this the"
                " right file?"
            )
    if rest:
        yield [bytes(rest)]


def numbered(batches: Iterable[list[bytes]]) -> Iterator[tuple[int, bytes] | None]:
    """All pieces, counted from 1; ``None`` after each batch: nothing more has come so far."""
    number = 0
    for batch in batches:
        for number, piece in enumerate(batch, number + 1):  # noqa: B020  (goes on counting)
            yield number, piece
        yield None


def grouped(
    values: Iterable[tuple[int, bytes] | None], size: int, keys: Callable[[], Keys]
) -> Iterator[Entry | None]:
    """Numbered values, ``size`` in a znode (the last one may have less); the pauses between
    them.
    """
    together: list[bytes] = []
    first = 0
    for one in values:
        if one is None:
            yield None
            continue
        first = first if together else one[0]
        together.append(one[1])
        if len(together) == size:
            yield Entry(first, tuple(together), keys())
            together = []
    if together:
        yield Entry(first, tuple(together), keys())


def from_base64(text: bytes) -> bytes:
    """:raises BadEntry: it is none."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadEntry("is not base64") from None


def from_json(number: int, line: bytes) -> Entry:
    """An object as ``leaderq queue peek --json`` and ``drain --json`` write it: ``values`` (or
    ``value``), and ``id``, ``priority`` or ``due_ms``.

    :raises BadEntry: it is none.
    """
    try:
        said = json.loads(line)
    except ValueError as exc:
        raise BadEntry(f"is not JSON: {exc}") from None
    if not isinstance(said, dict):
        raise BadEntry("is not a JSON object")
    if "corrupt" in said:
        raise BadEntry("was a corrupt item")
    values = said["values"] if "values" in said else [said["value"]] if "value" in said else None
    if not isinstance(values, list):
        raise BadEntry('has neither "values", a list, nor "value"')
    return Entry(number, tuple(_value(one) for one in values), _keys(said))


def _keys(said: dict[str, Any]) -> Keys:
    if ("priority" in said and said["priority"] is None) or said.get("due_ms") == 0:
        return Keys(is_bare=True)
    keys = _typed(said, "id", str), _typed(said, "priority", int), _typed(said, "due_ms", int)
    return Keys(*keys, group=_typed(said, "group", str), headers=_typed(said, "headers", dict))


def _typed(said: dict[str, Any], name: str, kind: type) -> Any:
    value = said.get(name)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        words = {str: "text", int: "a whole number", dict: "an object"}
        raise BadEntry(f'has a "{name}" that is not {words[kind]}')
    return value


def _value(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if (
        isinstance(value, dict)
        and set(value) == {"base64"}
        and isinstance(text := value["base64"], str)
    ):
        return from_base64(text.encode())
    raise BadEntry('has a value that is neither text nor {"base64": ...}')
