"""Logs: every event as one record, written on standard error as text for people or as one JSON object a line.

A record carries, besides its sentence, ``event`` (the event's name), ``career``, ``candidate`` and the event's own fields
(``term``, ``stage``, ``reason``...) as attributes, so that any handler of the user's can use them.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime, timezone
from enum import Enum
from pathlib import Path
from types import TracebackType
from typing import Any

from leaderq import events as happened
from leaderq.errors import CareerFailed, Deposed
from leaderq.events import CareerError, Event, EventBus
from leaderq.observability.background import BackgroundHandler

log = logging.getLogger("leaderq.events")

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OURS = str(Path(__file__).parents[1])


def log_events(events: EventBus) -> Callable[[], None]:
    """Log everything published on ``events``; gives a function that ends it."""
    return events.subscribe(Event, _log_event)


def log_failure(error: CareerFailed) -> None:
    """Log what ended the process from the user's code outside of any term, with the traceback of that code."""
    cause = error.__cause__
    info = (type(cause), cause, _from_user_code(cause.__traceback__)) if cause is not None else None
    log.error("%s", error, extra={"event": "career_failed", "career": error.career, "stage": error.stage}, exc_info=info)


def configure(form: str, level: str) -> None:
    """Write logs of this process on standard error as ``form`` (*text* or *json*), from ``level`` on.

    A ZooKeeper session's changes of state are logged as events only. Of the client libraries' own logs kazoo's appear from
    *warning* on at most, kafka-python's with *debug* only. Warnings of Python go the same way.
    """
    handler = BackgroundHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else PlainLines())
    root = logging.getLogger()
    for former in root.handlers:
        former.flush()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    # At its level 5 kazoo writes session passwords, at debug every request.
    logging.getLogger("kazoo").setLevel(max(logging.WARNING, root.level))
    # SessionChanged says the same, with career and candidate.
    logging.getLogger("leaderq.zookeeper.session").setLevel(max(logging.ERROR, root.level))
    # It calls every failed attempt an error, many times a second; leaderq says itself what matters of it.
    logging.getLogger("kafka").setLevel(logging.WARNING if root.level <= logging.DEBUG else logging.CRITICAL)
    logging.captureWarnings(True)


class PlainLines(logging.Formatter):
    """``12:30:01.250 INFO    sentence``; other libraries' records name their logger."""

    def format(self, record: logging.LogRecord) -> str:
        """One line, and the traceback of an error behind it."""
        moment = time.strftime("%H:%M:%S", time.localtime(record.created))
        origin = "" if record.name.startswith("leaderq") else f"{record.name}: "
        line = f"{moment}.{int(record.msecs):03d} {record.levelname:<7} {origin}{record.getMessage()}"
        return "\n".join([line, *_attachments(self, record)])


class JsonLines(logging.Formatter):
    """One JSON object a line: ``time`` (ISO 8601, UTC), ``level``, ``message``, ``logger``, and the record's own fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        line: dict[str, Any] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            "logger": record.name,
        }
        line |= {key: value for key, value in vars(record).items() if key not in _STANDARD and key not in line}
        attachments = _attachments(self, record)
        if attachments:
            line["traceback"] = "\n".join(attachments)
        return json.dumps(line, default=str, ensure_ascii=False)


def _attachments(formatter: logging.Formatter, record: logging.LogRecord) -> list[str]:
    found = []
    if record.exc_info and record.exc_info[0] is not None:
        found.append(formatter.formatException(record.exc_info))
    if record.stack_info:
        found.append(formatter.formatStack(record.stack_info))
    return found


def _log_event(event: Event) -> None:
    level, said = sentence(event)
    error = event.error if isinstance(event, CareerError) and not isinstance(event.error, Deposed) else None
    info = (type(error), error, _from_user_code(error.__traceback__)) if error is not None else None
    log.log(level, "%s", said, extra=_fields(event), exc_info=info)


def _fields(event: Event) -> dict[str, Any]:
    values = {each.name: getattr(event, each.name) for each in fields(event)}
    return {"event": event.name} | {name: _plain(value) for name, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    return value.value if isinstance(value, Enum) else value


def _from_user_code(trace: TracebackType | None) -> TracebackType | None:
    """``trace`` without our own frames at its head: what is left is where the user looks."""
    first = trace
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_OURS):
        first = first.tb_next
    return first or trace


_Sentence = tuple[int, Callable[[Any], str]]

_SENTENCES: dict[type[Event], _Sentence] = {
    happened.Standing: (logging.INFO, lambda e: "stands for election"),
    happened.TermBegan: (
        logging.INFO,
        lambda e: f"won term {e.term}" + (" (the term before ended uncleanly)" if e.unclean else ""),
    ),
    happened.StageBegan: (logging.INFO, lambda e: f"term {e.term}: {e.stage.value} begins"),
    happened.WorkPaused: (logging.WARNING, lambda e: f"term {e.term}: work pauses: {e.why}"),
    happened.WorkResumed: (logging.INFO, lambda e: f"term {e.term}: work goes on"),
    happened.TermEnding: (logging.INFO, lambda e: f"term {e.term} is ending: {e.reason.sentence}"),
    happened.TermEnded: (
        logging.INFO,
        lambda e: f"term {e.term} ended{'' if e.clean else ' uncleanly'}: {e.reason.sentence}",
    ),
    happened.CareerError: (logging.ERROR, lambda e: f"term {e.term}: {e.stage} raised {type(e.error).__name__}: {e.error}"),
    happened.CoolingOff: (
        logging.WARNING,
        lambda e: f"stands again in {e.seconds:.1f} s ({e.failures} failed in a row): {e.why}",
    ),
    happened.BudgetMissed: (
        logging.ERROR,
        lambda e: f"term {e.term}: {e.stage} takes longer than its budget of {e.budget_s:g} s",
    ),
    happened.Withdrawn: (logging.INFO, lambda e: "no longer stands for election"),
    happened.SessionChanged: (logging.INFO, lambda e: f"ZooKeeper session: {e.state}"),
    happened.GuardianLost: (
        logging.WARNING,
        lambda e: (
            f"the guardian (process {e.pid}) is gone; after a crash leadership is free only when the session times out"
        ),
    ),
    happened.DrainStalled: (
        logging.WARNING,
        lambda e: f"{e.partition} stood still at {e.position} of {e.end}; the consumer was rebuilt ({e.rebuilt} so far)",
    ),
    happened.DrainProgress: (
        logging.DEBUG,  # every few seconds
        lambda e: f"term {e.term}: {e.lag} to go; {e.rate_per_s or 0:.1f}/s handled, {e.arriving_per_s or 0:.1f}/s arriving",
    ),
    # The drain warns of both itself, with the error.
    happened.RecordSkipped: (logging.DEBUG, lambda e: f"skipped {e.partition}@{e.offset} after {e.attempts} attempts"),
    happened.RecordBuried: (
        logging.DEBUG,
        lambda e: f"set {e.partition}@{e.offset} aside on {e.topic} after {e.attempts} attempts",
    ),
}


def sentence(event: Event) -> tuple[int, str]:
    """Level (of :mod:`logging`) and sentence of ``event``; one of an unknown class is told by its name."""
    for kind in type(event).__mro__:
        if kind in _SENTENCES:
            level, say = _SENTENCES[kind]
            break
    else:
        level, say = logging.INFO, lambda e: e.name.replace("_", " ")
    return level, f"{event.career}/{event.candidate} {say(event)}"
