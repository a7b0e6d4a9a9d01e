"""From one state of a message to the next: the operations of each, all or none (pure).

``docs/design/dyno.md`` has the table. Every transition after the first delivery names the version
of the claim that it expects, so one that somebody else has overtaken is refused by the servers.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from leaderq.dyno.index import Choice
from leaderq.dyno.layout import RestName, ShardPaths, rest_name
from leaderq.dyno.message import MAX_ERROR, DeliveryState, Frame
from leaderq.errors import CorruptItem
from leaderq.zookeeper import Check, Create, Delete, Operation, SetData

Operations = tuple[Operation, ...]


def delivery(paths: ShardPaths, choice: Choice, state: DeliveryState) -> Operations:
    """Hand it out. ``state`` counts this delivery already."""
    claim = paths.claim(choice.name)
    if choice.version is None:
        return Check(paths.message(choice.name)), Create(claim, state.packed())
    update = SetData(claim, state.packed(), choice.version)
    return (update,) if choice.rest is None else (update, Delete(paths.rest(choice.rest)))


def extension(paths: ShardPaths, name: str, version: int, state: DeliveryState) -> Operations:
    """The same consumer keeps it for longer."""
    return (SetData(paths.claim(name), state.packed(), version),)


def completion(paths: ShardPaths, name: str, version: int) -> Operations:
    """It is done."""
    return Delete(paths.claim(name), version), Delete(paths.message(name))


def rest(paths: ShardPaths, name: str, version: int, state: DeliveryState) -> Operations:
    """It is given back, to be delivered when ``state.until_ms`` has come."""
    marker = rest_name(state.until_ms, version + 1, name)
    return SetData(paths.claim(name), state.packed(), version), Create(paths.rest(marker))


def first_rest(paths: ShardPaths, name: str, state: DeliveryState) -> Operations:
    """One that was never delivered is due at another time."""
    marker = rest_name(state.until_ms, 0, name)
    return Check(paths.message(name)), Create(paths.claim(name), state.packed()), Create(paths.rest(marker))


def another_rest(paths: ShardPaths, resting: RestName, state: DeliveryState) -> Operations:
    """One that rests is due at another time."""
    former = rest_name(resting.until_ms, resting.version, resting.name)
    return Delete(paths.rest(former)), *rest(paths, resting.name, resting.version, state)


def removal(paths: ShardPaths, name: str, version: int | None, resting: RestName | None) -> Operations:
    """All of it. ``version``: of its claim; ``None`` if it was never delivered."""
    operations: list[Operation] = [Delete(paths.message(name))]
    if version is not None:
        operations.append(Delete(paths.claim(name), version))
    if resting is not None:
        operations.append(Delete(paths.rest(rest_name(resting.until_ms, resting.version, name))))
    return tuple(operations)


def burial(paths: ShardPaths, name: str, version: int | None, resting: RestName | None, letter: bytes) -> Operations:
    """It goes to the dead letters."""
    return *removal(paths, name, version, resting), Create(paths.dead_letter(name), letter)


_MAGIC = b"DQD1\n"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message that is not delivered any more. ``reason``: ``attempts``, ``killed``, ``corrupt``,
    ``consumer died``. ``name`` is that of the message, which the letter has kept."""

    name: str
    shard: str
    reason: str
    error: str
    deliveries: int
    failures: int
    first_ms: int
    died_ms: int
    data: bytes

    @property
    def frame(self) -> Frame:
        """The message itself.

        :raises CorruptItem: its bytes are not a message; they are in ``data``.
        """
        return Frame.read(self.data)

    def packed(self) -> bytes:
        """The bytes of its znode."""
        said: dict[str, Any] = {key: value for key, value in asdict(self).items() if key != "data"}
        said["error"] = self.error[:MAX_ERROR]
        head = json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
        return _MAGIC + head + b"\n" + self.data

    @classmethod
    def read(cls, data: bytes) -> DeadLetter:
        """Undo :meth:`packed`.

        :raises CorruptItem: these bytes are not a dead letter.
        """
        head, found, body = data.removeprefix(_MAGIC).partition(b"\n")
        if not data.startswith(_MAGIC) or not found:
            raise CorruptItem(f"these {len(data)} bytes are not a dead letter")
        try:
            return cls(**json.loads(head), data=body)
        except (ValueError, TypeError, RecursionError) as exc:
            raise CorruptItem(f"these {len(data)} bytes are not a dead letter: {exc}") from exc
