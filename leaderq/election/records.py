"""What stands in the ``term`` and ``control`` znodes: JSON objects, readable and repairable by hand.

Unknown fields of a newer version are ignored. Text that is not such an object is never overwritten: the number of the newest
term would be lost with it, and with it the fence.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, TypeVar

from leaderq.errors import CorruptRecord

R = TypeVar("R", "TermRecord", "Wishes")


@dataclass(frozen=True, slots=True)
class TermRecord:
    """The newest term: who leads, or led last.

    ``candidate`` is the id given by ``--id``; ``id`` the name of its znode, unique for ever. ``began`` and ``ended`` are seconds
    since the epoch, for people; no decision is made on them. ``ended is None`` after its znode is gone: an unclean end.
    """

    number: int = 0
    candidate: str | None = None
    id: str | None = None
    host: str | None = None
    pid: int | None = None
    stage: str | None = None
    began: float | None = None
    ended: float | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Wishes:
    """What operators want of a career.

    ``paused``: the leader begins no new unit of work. ``step_down``: the number of the term that should end. ``successor``: the
    id of the candidate that should follow that term. ``floor``: the next term's number is at least this.
    """

    paused: bool = False
    step_down: int | None = None
    successor: str | None = None
    floor: int = 0


def encode(record: TermRecord | Wishes) -> bytes:
    """The bytes to store."""
    return json.dumps(asdict(record), separators=(",", ":")).encode()


def decode(kind: type[R], data: bytes, *, path: str) -> R:
    """The record in ``data``; empty data gives an empty record.

    Raises :class:`CorruptRecord` naming ``path`` when it is something else.
    """
    if not data:
        return kind()
    try:
        found = _object(json.loads(data))
        known: dict[str, Any] = {field.name: found[field.name] for field in fields(kind) if field.name in found}
        _check_counter(known.get("number", known.get("floor", 0)))
        return kind(**known)
    except (ValueError, TypeError) as exc:
        raise CorruptRecord(
            f"the znode {path} holds {data[:60]!r}, which is no {kind.__name__} ({exc}); "
            f"repair it by hand, keeping the highest term number that was ever given out"
        ) from exc


def _object(found: Any) -> dict[str, Any]:
    if not isinstance(found, dict):
        raise TypeError("it is no JSON object")
    return found


def _check_counter(counter: Any) -> None:
    if not isinstance(counter, int) or isinstance(counter, bool) or counter < 0:
        raise ValueError(f"{counter!r} is no term number")


def next_number(newest: TermRecord, wishes: Wishes) -> int:
    """The number of the term after ``newest``: dense, never lower than an operator's floor."""
    return max(newest.number + 1, wishes.floor)


def closed(record: TermRecord, *, ended: float, reason: str) -> TermRecord:
    """The record of a term that ended cleanly."""
    return replace(record, ended=ended, reason=reason)
