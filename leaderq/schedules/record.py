"""What ZooKeeper stores of a schedule (pure): up to which tick all are accounted for, the tick that
was begun, and what became of the newest ticks.

``/leaderq/<career>/schedules/<name>`` holds the record, which only leaders write, fenced; the data
of ``/leaderq/<career>/schedules`` are the operators' wishes for all schedules of the career. Both
are JSON, readable and repairable by hand; fields of a record that this version does not know are
kept. Times are milliseconds since the epoch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from enum import Enum
from typing import Any

from leaderq.errors import ConfigurationError, CorruptRecord
from leaderq.schedules.definition import When

KEPT = 100
"""So many entries of the history are kept."""


class TickOutcome(str, Enum):
    """What became of a tick that was begun."""

    DONE = "done"
    FAILED = "failed"
    LOST = "lost"


class PassedOver(str, Enum):
    """Why ticks were not begun; the value is the word in the record."""

    MISSED = "missed"
    LATE = "late"
    TOO_OLD = "too-old"
    TOO_MANY = "too-many"
    OVERLAP = "overlap"
    PAUSED = "paused"

    @property
    def sentence(self) -> str:
        """The reason as a sentence for people."""
        return _SENTENCES[self]


_SENTENCES = {
    PassedOver.MISSED: "nobody could run them in time; a later one ran in their place",
    PassedOver.LATE: "nobody could run them in time, and the schedule does not catch up",
    PassedOver.TOO_OLD: "they were older than grace_s",
    PassedOver.TOO_MANY: "too many were missed; the newest are caught up",
    PassedOver.OVERLAP: "the one before still ran",
    PassedOver.PAUSED: "the schedule was paused",
}


@dataclass(frozen=True, slots=True)
class TickRun:
    """A tick that was begun. ``at`` is the time that it stands for; ``term`` and ``candidate`` are
    those of its newest attempt. ``ended`` and ``outcome`` are ``None`` until its end is recorded.
    ``missed``: how many missed ticks it replaces. ``key``: if given, the run stands for this key
    and not for a time of the schedule.
    """

    at: int
    began: int
    term: int
    candidate: str
    attempt: int = 1
    missed: int = 0
    ended: int | None = None
    outcome: TickOutcome | None = None
    error: str | None = None
    key: str | None = None


@dataclass(frozen=True, slots=True)
class TickGap:
    """``count`` ticks that were passed over, from ``first`` to ``last``, for the reason ``why``."""

    first: int
    last: int
    count: int
    why: PassedOver


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """The record of a schedule. ``last``: all ticks up to this one are accounted for. ``when``: the
    times of the ticks, as the leader that wrote this knew them. ``next``: the first tick after
    ``last``. ``running``: the tick that was begun and is not known to have ended. ``ran`` and
    ``restarts`` count the operators' requests that were followed. ``history``: the oldest entry
    comes first.
    """

    last: int
    when: When
    next: int | None = None
    running: TickRun | None = None
    ran: int = 0
    restarts: int = 0
    history: tuple[TickRun | TickGap, ...] = ()
    other: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class ScheduleWishes:
    """What operators want of one schedule. ``run`` and ``restarts`` count requests; the leader
    follows those that its record does not count yet.
    """

    paused: bool = False
    run: int = 0
    restarts: int = 0


def encode(record: ScheduleRecord) -> bytes:
    """The bytes that :func:`decode` reads."""
    values = {
        "last": record.last,
        "next": record.next,
        "when": brief(record.when),
        "running": record.running and brief(record.running),
        "ran": record.ran,
        "restarts": record.restarts,
        "history": [brief(each) for each in record.history[-KEPT:]],
    }
    return json.dumps({**values, **record.other}, separators=(",", ":")).encode()


def brief(value: Any) -> dict[str, Any]:
    """The fields of ``value`` that differ from their defaults, by name."""
    values = ((each, getattr(value, each.name)) for each in fields(value))
    return {each.name: one for each, one in values if one != each.default}


def decode(data: bytes, *, path: str) -> ScheduleRecord:
    """The record in ``data``; raises :class:`CorruptRecord`."""

    def made(found: dict[str, Any]) -> ScheduleRecord:
        running = found.pop("running", None)
        record = ScheduleRecord(
            _number("last", int(found.pop("last"))),
            _known(When, found.pop("when")),
            None if (at := found.pop("next", None)) is None else _number("next", int(at)),
            run_of(running) if running else None,
            _number("ran", int(found.pop("ran", 0))),
            _number("restarts", int(found.pop("restarts", 0))),
            tuple(run_of(one) if "at" in one else _gap(one) for one in found.pop("history", ())),
            found,
        )
        record.when.between(record.last, record.last)  # raises if there are no such times
        return record

    remedy = "the leader begins a new one: ticks that were missed until then are not known"
    record: ScheduleRecord = _decoded(data, path, made, remedy)
    return record


def run_of(found: Mapping[str, Any]) -> TickRun:
    """The run whose fields ``found`` has, as :func:`brief` returned them."""
    outcome = found.get("outcome")
    run: TickRun = _known(TickRun, {**found, "outcome": outcome and TickOutcome(outcome)})
    return run


def _gap(found: Mapping[str, Any]) -> TickGap:
    gap: TickGap = _known(TickGap, {**found, "why": PassedOver(found["why"])})
    return gap


_SPOILT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_END = 10**14
"""No number in a record is as large: as a time, it is in the year 5138."""
_TYPES: dict[str, Any] = {"int": int, "bool": bool, "str": str}
"""The types of fields, by their annotations; other fields are made or checked elsewhere."""


def _known(kind: Any, found: Mapping[str, Any]) -> Any:
    known = {one: found[one.name] for one in fields(kind) if one.name in found}
    for one, value in known.items():
        wanted, _, or_none = str(one.type).partition(" | ")
        if not isinstance(value, _TYPES.get(wanted, object)) and not (or_none and value is None):
            raise TypeError(f"{one.name!r} is not {one.type}")
        if isinstance(value, int):
            _number(one.name, value)
    return kind(**{one.name: value for one, value in known.items()})


def _number(name: str, value: int) -> int:
    if not 0 <= value < _END:
        raise ValueError(f"{name!r} is {value}")
    return value


def encode_wishes(wishes: Mapping[str, Any]) -> bytes:
    """The bytes that :func:`decode_wishes` reads."""
    return json.dumps(wishes, default=brief, separators=(",", ":")).encode()


def decode_wishes(data: bytes, *, path: str) -> dict[str, ScheduleWishes]:
    """The wishes for each schedule; raises :class:`CorruptRecord`."""

    def made(found: dict[str, Any]) -> dict[str, ScheduleWishes]:
        return {name: _known(ScheduleWishes, one) for name, one in found.items()}

    remedy = "the operators' wishes for schedules are lost; the next one writes it again"
    return _decoded(data, path, made, remedy) if data else {}


def _decoded(data: bytes, path: str, made: Callable[[dict[str, Any]], Any], remedy: str) -> Any:
    try:
        return made(dict(json.loads(data).items()))
    except (*_SPOILT, RecursionError, ConfigurationError) as exc:
        what = f"the znode {path} holds {data[:60]!r}, which is not a schedule's record"
        raise CorruptRecord(f"{what} ({type(exc).__name__}: {exc}); {remedy}") from exc
