"""Shows items and queues (pure): one line each for people, everything for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leaderq.admin.dyno_queues import DYNO
from leaderq.admin.text import brief, cut, duration, iso, local
from leaderq.cli.output import json_value
from leaderq.queues.admin import Browsed, DeadItem, Overview
from leaderq.queues.wire.names import QueueKind

AnyKind = QueueKind | str | None
_COUNTS = ("DEPTH", "HELD", "DEAD", "NEXT", "CONSUMERS")
QUEUE_HEADINGS = ("QUEUE", "KIND", *_COUNTS, "OLDEST", "REMARKS")
LETTER_HEADINGS = ("NAME", "DIED", "ORIGIN", "ATTEMPTS", "REASON", "ERROR", "ITEM")
_KEY_HEADINGS: dict[AnyKind, tuple[str, ...]] = {
    QueueKind.ID: ("ID",),
    QueueKind.PRIORITY: ("PRIORITY",),
    QueueKind.DELAY: ("DUE",),
    DYNO: ("ID", "PRIORITY", "DUE", "HELD"),
}
_WIDEST = 60
_WARN_FROM = 2**31 - 2**27


def _content(found: Browsed) -> str:
    if found.items is None:
        return f"(corrupt: {cut(found.problem or '', _WIDEST)})"
    if not found.items:
        return "(no item)"
    more = f" (and {len(found.items) - 1} more)" if len(found.items) > 1 else ""
    return brief(found.items[0]) + more


def _content_json(found: Browsed) -> dict[str, Any]:
    if found.items is None:
        return {"corrupt": found.problem, "data": json_value(found.data)}
    return {"values": [json_value(item) for item in found.items]}


def item_headings(kind: AnyKind, *, with_locks: bool) -> Sequence[str]:
    """The headings of a table of items; see :func:`item_row`."""
    held = ("HELD",) if with_locks else ()
    keys = _KEY_HEADINGS.get(kind, ())
    return ("NAME", *keys, "ENQUEUED", "ATTEMPT", *held, "BYTES", "ITEM")


def item_row(one: Browsed, kind: AnyKind, *, with_locks: bool) -> Sequence[Any]:
    """An item as a row. ATTEMPT is the attempt that the item waits for, or that is under way."""
    held = "yes" if one.is_locked else None
    keys = _key_json(one, kind)
    keys |= {"due": local(keys.get("due_ms")), "held": held}
    return (
        one.name,
        *(keys[heading.lower()] for heading in _KEY_HEADINGS.get(kind, ())),
        local(one.enqueued_ms),
        one.attempt + 1,
        *((held,) if with_locks else ()),
        None if one.items is None else sum(map(len, one.items)),
        _content(one),
    )


def item_json(one: Browsed, kind: AnyKind) -> dict[str, Any]:
    """An item for JSON. A corrupt item has ``data`` in place of ``values``."""
    held = {} if one.is_locked is None else {"held": one.is_locked}
    when = {"enqueued": iso(one.enqueued_ms), "attempt": one.attempt + 1}
    return {"name": one.name, **_key_json(one, kind), **when, **held, **_content_json(one)}


def _key_json(one: Browsed, kind: AnyKind) -> dict[str, Any]:
    """The id, priority or due time of an item, if its kind of queue has one; for a message of a
    Dyno queue, all its fields.
    """
    if not isinstance(kind, QueueKind):
        return dict(getattr(one, "said", {}))
    key = one.key(kind)
    if kind is QueueKind.DELAY:
        return {"due": iso(key if isinstance(key, int) else None), "due_ms": key}
    return {heading.lower(): key for heading in _KEY_HEADINGS.get(kind, ())}


def letter_row(letter: DeadItem) -> Sequence[Any]:
    note = letter.note
    error = None if note.error is None else cut(" ".join(note.error.split()), _WIDEST)
    death = (local(letter.died_ms), note.origin, note.attempt, note.reason, error)
    return (letter.name, *death, _content(letter.found))


def letter_json(letter: DeadItem) -> dict[str, Any]:
    note = letter.note
    return {
        "name": letter.name,
        "died": iso(letter.died_ms),
        "attempts": note.attempt,
        "reason": note.reason,
        "error": note.error,
        "origin": note.origin,
        "enqueued": iso(note.enqueued_ms),
        "raw": note.raw,
        **getattr(letter.found, "said", {}),  # of a message of a Dyno queue
        **_content_json(letter.found),
    }


def shard_row(said: dict[str, Any]) -> Sequence[Any]:
    *counts, age_s = said.values()
    return (*counts, None if age_s is None else duration(age_s))


def dyno_row(said: dict[str, Any]) -> Sequence[Any]:
    """The row of a Dyno queue; ``said`` is what ``DynoAdmin.overview`` returns."""
    remarks = f"{said['due']} due, {said['delayed']} delayed, {len(said['shards'])} shards"
    remarks += ", paused" if said["paused"] else ""
    age_s = said["oldest_due_s"]
    cells = (said["depth"], said["held"], said["dead"], None, said["consumers"])
    age = None if age_s is None else duration(age_s)
    return (said["queue"], DYNO, *cells, age, remarks)


def queue_row(seen: Overview, now_ms: float) -> Sequence[Any]:
    counts = (seen.depth, seen.held, seen.dead, seen.next_sequence, seen.consumers)
    age = None if seen.oldest_ms is None else duration((now_ms - seen.oldest_ms) / 1000)
    return (seen.path, _kind(seen), *counts, age, "; ".join(_remarks(seen)) or None)


def queue_json(seen: Overview) -> dict[str, Any]:
    return {
        "queue": seen.path,
        "kind": _kind(seen),
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


def _kind(seen: Overview) -> str | None:
    return "sharder" if seen.shards else seen.kind.value if seen.kind else None


def _remarks(seen: Overview) -> list[str]:
    said = []
    if seen.is_paused:
        said.append("paused")
    if not seen.exists:
        said.append("its path is not there")
    if seen.aside:
        said.append(f"{seen.aside} held by a drain that is running or has died (drain again)")
    if seen.shards:
        said.append(f"{len(seen.shards)} queues below it")
    if seen.foreign:
        said.append(f"{len(seen.foreign)} foreign: {cut(', '.join(seen.foreign), 30)}")
    if seen.next_sequence >= _WARN_FROM:
        said.append("its numbers run out at 2147483647")
    return said
