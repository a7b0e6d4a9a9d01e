"""How items and queues are shown (pure): to people on one line each, to programs whole."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Any, Union, cast

from leaderq.cli.output import duration, harmless, iso, json_value, local

if TYPE_CHECKING:
    from leaderq.queues.admin import Browsed, DeadItem, Overview
    from leaderq.queues.wire.names import QueueKind


class DynoKind(Enum):
    """The kind of a queue that is none of Curator's recipes."""

    DYNO = "dyno"


AnyKind = Union["QueueKind", DynoKind]
QUEUE_HEADINGS = (
    "QUEUE",
    "KIND",
    "DEPTH",
    "HELD",
    "DEAD",
    "NEXT",
    "CONSUMERS",
    "OLDEST",
    "REMARKS",
)
LETTER_HEADINGS = ("NAME", "DIED", "ORIGIN", "ATTEMPTS", "REASON", "ERROR", "ITEM")
_WIDEST = 60
_WARN_FROM = 2**31 - 2**27


def brief(data: bytes) -> str:
    """At most some sixty characters on one line that do no harm to a terminal."""
    try:
        text = data[: 4 * _WIDEST].decode(errors="strict" if len(data) <= 4 * _WIDEST else "ignore")
    except UnicodeDecodeError:
        return _cut(f"(hexadecimal) {data[:_WIDEST].hex(' ')}")
    if len(data) > 4 * _WIDEST and not text:
        return _cut(f"(hexadecimal) {data[:_WIDEST].hex(' ')}")
    return _cut(harmless(text), len(text) < len(data) // 4)


def item_cell(items: Sequence[bytes] | None, problem: str | None) -> str:
    """What a znode holds, in one cell."""
    if items is None:
        return f"(corrupt: {_cut(problem or '')})"
    if not items:
        return "(no item)"
    more = f" (and {len(items) - 1} more)" if len(items) > 1 else ""
    return brief(items[0]) + more


def item_headings(kind: AnyKind | None, *, with_locks: bool) -> tuple[str, ...]:
    """The headings of a table of items; see :func:`item_row`."""
    return (
        "NAME",
        *_key_heading(kind),
        "ENQUEUED",
        "ATTEMPT",
        *(("HELD",) if with_locks else ()),
        "BYTES",
        "ITEM",
    )


def item_row(one: Browsed, kind: AnyKind | None, *, with_locks: bool) -> tuple[Any, ...]:
    """An item as a row. ATTEMPT is the one it is waiting for, or in: one more than it has
    failed.
    """
    held = ("yes" if one.is_locked else None,) if with_locks else ()
    size = None if one.items is None else sum(map(len, one.items))
    return (
        one.name,
        *_key_cells(one, kind),
        local(one.enqueued_ms),
        one.attempt + 1,
        *held,
        size,
        item_cell(one.items, one.problem),
    )


def item_json(one: Browsed, kind: AnyKind | None) -> dict[str, Any]:
    """An item as JSON says it; corrupt ones have no ``values``, but their ``data``."""
    said: dict[str, Any] = {
        "name": one.name,
        **key_json(one, kind),
        "enqueued": iso(one.enqueued_ms),
    }
    said["attempt"] = one.attempt + 1
    if one.is_locked is not None:
        said["held"] = one.is_locked
    if one.items is None:
        return {**said, "corrupt": one.problem, "data": json_value(one.data)}
    return {**said, "values": [json_value(item) for item in one.items]}


def key_json(one: Browsed, kind: AnyKind | None) -> dict[str, Any]:
    """Id, priority or due time, as the kind has one; of a message of a Dyno queue all it has."""
    if kind is None or kind.value == "dyno":
        return dict(getattr(one, "said", {}))
    if not (heading := _key_heading(kind)):
        return {}
    key = one.key(cast("QueueKind", kind))
    if heading[0] == "DUE":
        return {"due": iso(key if isinstance(key, int) else None), "due_ms": key}
    return {heading[0].lower(): key}


def letter_row(letter: DeadItem) -> tuple[Any, ...]:
    """A dead letter as a row."""
    note, found = letter.note, letter.found
    error = None if note.error is None else _cut(" ".join(note.error.split()))
    what = item_cell(found.items, found.problem)
    return (letter.name, local(letter.died_ms), note.origin, note.attempt, note.reason, error, what)


def letter_json(letter: DeadItem) -> dict[str, Any]:
    """A dead letter as JSON says it."""
    note, found = letter.note, letter.found
    said = {
        "name": letter.name,
        "died": iso(letter.died_ms),
        "attempts": note.attempt,
        "reason": note.reason,
        "error": note.error,
        "origin": note.origin,
        "enqueued": iso(note.enqueued_ms),
        "raw": note.raw,
        **getattr(found, "said", {}),  # of a message of a Dyno queue
    }
    if found.items is None:
        return {**said, "corrupt": found.problem, "data": json_value(found.data)}
    return {**said, "values": [json_value(item) for item in found.items]}


def shard_row(said: dict[str, Any]) -> tuple[Any, ...]:
    """A shard of a Dyno queue as a row."""
    *counts, age_s = said.values()
    return (*counts, None if age_s is None else duration(age_s))


def queue_row(seen: Overview, now_ms: float) -> tuple[Any, ...]:
    """A queue as a row."""
    kind = "sharder" if seen.shards else seen.kind.value if seen.kind else None
    age = None if seen.oldest_ms is None else duration(max(0.0, now_ms - seen.oldest_ms) / 1000)
    remarks = "; ".join(_remarks(seen)) or None
    return (
        seen.path,
        kind,
        seen.depth,
        seen.held,
        seen.dead,
        seen.next_sequence,
        seen.consumers,
        age,
        remarks,
    )


def queue_json(seen: Overview) -> dict[str, Any]:
    """A queue as JSON says it."""
    return {
        "queue": seen.path,
        "kind": "sharder" if seen.shards else seen.kind.value if seen.kind else None,
        "depth": seen.depth,
        "held": seen.held,
        "dead": seen.dead,
        "next_sequence": seen.next_sequence,
        "consumers": seen.consumers,
        "oldest": iso(seen.oldest_ms),
        "paused": seen.is_paused,
        "aside": seen.aside,
        "foreign": list(seen.foreign),
        "shards": list(seen.shards),
    }


def _remarks(seen: Overview) -> list[str]:
    said = []
    if seen.is_paused:
        said.append("paused")
    if not seen.exists:
        said.append("its path is not there")
    if seen.aside:
        said.append(f"{seen.aside} in the hands of a drain, which goes on or died (drain again)")
    if seen.shards:
        said.append(f"{len(seen.shards)} queues below it")
    if seen.foreign:
        said.append(f"{len(seen.foreign)} foreign: {_cut(', '.join(seen.foreign), width=30)}")
    if seen.next_sequence >= _WARN_FROM:
        said.append("its numbers run out at 2147483647")
    return said


def _key_heading(kind: AnyKind | None) -> tuple[str, ...]:
    headings = {
        "id": ("ID",),
        "priority": ("PRIORITY",),
        "delay": ("DUE",),
        "dyno": ("ID", "PRIORITY", "DUE", "HELD"),
    }
    return headings.get(kind.value, ()) if kind else ()


def _key_cells(one: Browsed, kind: AnyKind | None) -> tuple[Any, ...]:
    said = key_json(one, kind)
    wanted = [heading.lower() for heading in _key_heading(kind)]
    cells = {**said, "due": local(said.get("due_ms")), "held": "yes" if one.is_locked else None}
    return tuple(cells[name] for name in wanted)


def _cut(text: str, is_longer: bool = False, *, width: int = _WIDEST) -> str:
    return text if len(text) <= width and not is_longer else text[: width - 1] + "…"
