"""The transitions of a message from one state to the next: the operations of each, which are
written all or none (pure).

``docs/design/dyno.md`` has the table. Every transition after the first delivery names the version
of the claim that it expects, so the servers refuse a transition if somebody else was faster.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from leaderq.dyno.index import Choice
from leaderq.dyno.layout import IDS, RESTS, DynoPaths, ShardPaths, rest_name
from leaderq.dyno.message import MAX_ERROR, DeliveryState, Frame, Unique
from leaderq.errors import CorruptItem, LeaderqError, NoNode
from leaderq.zookeeper import Check, Create, Delete, SetData
from leaderq.zookeeper.paths import name_of, parent_of
from leaderq.zookeeper.writing.groups import Operations


def delivery(paths: ShardPaths, choice: Choice, state: DeliveryState) -> Operations:
    """The operations that hand a message out. ``state`` already includes this delivery."""
    claim = paths.claim(choice.name)
    if choice.version is None:
        return Check(paths.message(choice.name)), Create(claim, state.packed())
    update = SetData(claim, state.packed(), choice.version)
    return (update,) if choice.rest is None else (update, Delete(paths.rest(choice.rest)))


def rest(paths: ShardPaths, name: str, version: int, state: DeliveryState) -> Operations:
    """The operations that let a message rest until ``state.until_ms``; then it is
    delivered again.
    """
    marker = rest_name(state.until_ms, version + 1, name)
    return SetData(paths.claim(name), state.packed(), version), Create(paths.rest(marker))


def first_rest(paths: ShardPaths, name: str, state: DeliveryState) -> Operations:
    """The operations that make a message, which was never delivered, due at ``state.until_ms``."""
    marker = rest_name(state.until_ms, 0, name)
    return *delivery(paths, Choice(name), state), Create(paths.rest(marker))


def id_over(
    paths: DynoPaths, frame: Frame, *, has_started: bool, done_ms: int | None = None
) -> Operations:
    """The operations on the id of a message that is done, dead or removed; none if it has no id any
    more. ``done_ms``: when it was acknowledged; ``None`` if it was not.
    """
    if not frame.id or (has_started and frame.unique is Unique.STARTED):
        return ()
    if done_ms is None or not frame.unique_s:
        return (Delete(paths.id(frame.id)),)
    until_ms = done_ms + int(frame.unique_s * 1000)
    return SetData(paths.id(frame.id), b"=%d" % until_ms), Create(paths.window(until_ms, frame.id))


def absence(path: str) -> Operations:
    """The operations that succeed only if there is no znode at ``path``; they change nothing."""
    return Create(path), Delete(path)


def removal(paths: ShardPaths, name: str, version: int | None, marker: str | None) -> Operations:
    """The operations that remove a message, its claim and its marker. ``version``: that of its
    claim; ``None``: the message was never delivered, which is checked.
    """
    claim = paths.claim(name)
    claimed = absence(claim) if version is None else (Delete(claim, version),)
    rested = () if marker is None else (Delete(paths.rest(marker)),)
    return *claimed, Delete(paths.message(name)), *rested


def end(
    paths: DynoPaths,
    shard: str,
    choice: Choice,
    frame: Frame,
    state: DeliveryState,
    *,
    done_ms: int | None = None,
    letter: DeadMessage | None = None,
) -> Operations:
    """The operations that end a message: it goes with its claim, its marker and its id, and leaves
    a ``letter`` if it died. ``done_ms``: when it was acknowledged.
    """
    its = paths.shard(shard)
    left = () if letter is None else (Create(its.dead_letter(choice.name), letter.packed()),)
    over = id_over(paths, frame, has_started=state.has_started, done_ms=done_ms)
    return *removal(its, *choice), *left, *over


def without_missing(operations: Operations, error: LeaderqError) -> Operations | None:
    """The operations without the one whose znode is missing according to ``error``; ``None`` if the
    message needs that znode. It can do without its id and without the marker of its rest.
    """
    path = error.path if isinstance(error, NoNode) else None
    if path is None or name_of(parent_of(path)) not in (IDS, RESTS):
        return None
    fewer = tuple(op for op in operations if op.path != path or isinstance(op, Create))
    return fewer if len(fewer) < len(operations) else None


_MAGIC = b"DQD1\n"


@dataclass(frozen=True, slots=True)
class DeadMessage:
    """A message that is not delivered any more. ``reason``: ``attempts``, ``killed``, ``corrupt``,
    ``consumer died``, ``expired``. ``name``: the name that the message had. ``data``: the bytes of
    its znode.
    """

    name: str
    shard: str
    reason: str
    error: str
    deliveries: int
    failures: int
    first_ms: int
    died_ms: int
    data: bytes

    @classmethod
    def of(
        cls, shard: str, name: str, data: bytes, state: DeliveryState, reason: str, died_ms: int
    ) -> DeadMessage:
        counts = state.deliveries, state.failures, state.first_ms, died_ms
        return cls(name, shard, reason, state.error, *counts, data)

    @property
    def frame(self) -> Frame:
        """The contents of the message. Raises ``CorruptItem`` if ``data`` is not a message."""
        return Frame.read(self.data)

    def packed(self) -> bytes:
        said: dict[str, Any] = {key: value for key, value in asdict(self).items() if key != "data"}
        said["error"], said["reason"] = self.error[:MAX_ERROR], self.reason[:MAX_ERROR]
        head = json.dumps(said, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")
        return _MAGIC + head + b"\n" + self.data

    @classmethod
    def read(cls, data: bytes, shard: str, name: str) -> DeadMessage:
        """Parse a letter that :meth:`packed` returned. ``shard`` and ``name`` come from its path,
        not from ``data``. Raises ``CorruptItem`` if ``data`` is not a letter.
        """
        head, found, body = data.removeprefix(_MAGIC).partition(b"\n")
        if not data.startswith(_MAGIC) or not found:
            raise CorruptItem(f"these {len(data)} bytes are not a dead letter")
        try:
            said = {**json.loads(head), "shard": shard, "name": name, "data": body}
            for key in ("deliveries", "failures", "first_ms", "died_ms"):
                said[key] = int(said[key])
            for key in ("reason", "error"):
                said[key] = str(said[key])
            return cls(**said)
        except (ValueError, ArithmeticError, TypeError, KeyError, RecursionError) as exc:
            raise CorruptItem(f"these {len(data)} bytes are not a dead letter: {exc}") from exc
