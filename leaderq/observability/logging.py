"""Logs: every event as one record on standard error, as text for people or as JSON, one a line.

The message is a fixed phrase with the values behind it, as in ``stage began career=c id=a term=7
stage=execution``. For other handlers a record carries, as attributes, ``event`` (its name),
``career``, ``candidate`` and the event's own fields (``term``, ``stage``, ``reason``...).
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from configparser import RawConfigParser
from dataclasses import fields
from datetime import datetime, timezone
from enum import Enum
from logging import DEBUG, ERROR, INFO, WARNING
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from leaderq import events as happened
from leaderq.errors import CareerFailed, CommandFailed, ConfigurationError, Deposed, Reason
from leaderq.events import CareerError, Event, EventBus
from leaderq.observability.background import BackgroundHandler

log = logging.getLogger("leaderq.events")
_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OURS = str(Path(__file__).parents[1])
PHRASES: dict[type[Event], tuple[int, str]] = {
    happened.Standing: (INFO, "stands for election"),
    happened.TermBegan: (INFO, "won a term"),
    happened.StageBegan: (INFO, "stage began"),
    happened.WorkPaused: (WARNING, "work is paused"),
    happened.WorkResumed: (INFO, "work is resumed"),
    happened.TermEnding: (INFO, "term is ending"),
    happened.TermEnded: (INFO, "term ended"),
    happened.CareerError: (ERROR, "career raised an error"),
    happened.WorkRefused: (INFO, "work was refused, its term was over"),
    happened.CoolingOff: (WARNING, "cools off before it stands again"),
    happened.BudgetMissed: (ERROR, "stage takes longer than its budget"),
    happened.Withdrawn: (INFO, "no longer stands for election"),
    happened.SessionChanged: (INFO, "ZooKeeper session changed"),
    happened.GuardianLost: (WARNING, "guardian is gone, a crash costs the session time-out"),
    happened.DrainStalled: (WARNING, "consumer stood still and was rebuilt"),
    happened.DrainProgress: (DEBUG, "progress of the consumer"),  # every few seconds
    # The drain warns of both itself, with the error.
    happened.RecordSkipped: (DEBUG, "record skipped"),
    happened.RecordDeadLettered: (DEBUG, "record moved to the dead letters"),
}


def log_events(events: EventBus) -> Callable[[], None]:
    """Log everything published on ``events``, once; return a function that ends it."""
    return events.subscribe(Event, _log_event)


def log_failure(error: CareerFailed) -> None:
    """Log what the user's code raised outside of any term, with its traceback."""
    extra = {"event": "career_failed", "career": error.career, "stage": error.stage}
    log.error("%s", error, extra=extra, exc_info=_from_user_code(error.__cause__))


def configure(form: str, level: str, config: Path | None = None) -> None:
    """Write the logs of this process, and Python's warnings, on standard error.

    ``form`` is *text* or *json*. The client libraries are kept quieter than ``level`` says.
    Handlers that a module has set on the root logger stay, and ours joins them, unless one of them
    writes to standard error or output already; so does a level of the root logger other than
    Python's default. ``config``: a file that sets all of it instead.

    :raises ConfigurationError: the file cannot be used.
    """
    root, number = logging.getLogger(), getattr(logging, level.upper())
    # At its level 5 kazoo writes session passwords, at debug every request (K17).
    logging.getLogger("kazoo").setLevel(max(WARNING, number))
    # SessionChanged says the same, with career and candidate.
    logging.getLogger("leaderq.zookeeper.session").setLevel(max(ERROR, number))
    # It calls every failed attempt an error, many times a second.
    logging.getLogger("kafka").setLevel(WARNING if number <= DEBUG else logging.CRITICAL)
    logging.captureWarnings(True)
    if config is not None:
        _configure_by(config)
        return
    own = [one for one in root.handlers if not isinstance(one, BackgroundHandler)]
    for former in root.handlers:
        former.flush()
    root.handlers[:] = own
    if not any(isinstance(one, logging.StreamHandler) and one.stream in _standard() for one in own):
        handler = BackgroundHandler(sys.stderr)
        handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
        root.addHandler(handler)
    if not own or root.level == WARNING:
        root.setLevel(number)
    logging.getLogger("leaderq").setLevel(number)


def _standard() -> tuple[TextIO | None, ...]:
    return sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__


def _configure_by(file: Path) -> None:
    """Set logging up as ``file`` says; loggers that it does not name go on."""
    from logging import config  # here: it loads a server of sockets, and most have no file

    try:
        text = file.read_text()
        if file.suffix not in _DICTIONARIES:
            parser = RawConfigParser()
            parser.read_string(text)
            config.fileConfig(parser, disable_existing_loggers=False)
            return
        found = {
            "version": 1,
            "disable_existing_loggers": False,
            **_DICTIONARIES[file.suffix](text),
        }
        config.dictConfig(found)
    except Exception as exc:
        why = f"{exc} ({exc.__cause__})" if exc.__cause__ else str(exc)
        what = f"log_config: {str(file)!r} cannot be used: {type(exc).__name__}: {why}"
        raise ConfigurationError(f"{what}; see logging.config in Python's documentation") from exc
    finally:
        kazoo = logging.getLogger("kazoo")
        kazoo.setLevel(max(DEBUG, kazoo.level))


def _toml(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    return tomllib.loads(text)


_DICTIONARIES: dict[str, Callable[[str], dict[str, Any]]] = {".json": json.loads, ".toml": _toml}


class TextFormatter(logging.Formatter):
    """``2026-11-22 12:30:01.250+0100 INFO    message``; records of other libraries name their
    logger.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (the library's name)
        """Return one line; the library puts the traceback of an error behind it."""
        at = time.localtime(record.created)
        moment = time.strftime("%Y-%m-%d %H:%M:%S", at)
        origin = "" if record.name.startswith("leaderq") else f"{record.name}: "
        head = f"{moment}.{int(record.msecs):03d}{time.strftime('%z', at)} {record.levelname:<7}"
        return f"{head} {origin}{record.message}"


class JsonFormatter(logging.Formatter):
    """``time`` (ISO 8601, UTC), ``level``, ``message``, ``logger``, and the record's own keys."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one JSON object on one line."""
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        line = {key: value for key, value in vars(record).items() if key not in _STANDARD}
        line["time"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line["level"] = record.levelname.lower()
        line["message"] = record.getMessage()
        line["logger"] = record.name
        error = self.formatException(record.exc_info) if record.exc_info else ""
        if attached := "\n".join(filter(None, [error, record.stack_info])):
            line["traceback"] = attached
        return json.dumps(line, default=str, ensure_ascii=False)


def message(event: Event) -> tuple[int, str]:
    """Return the level (of :mod:`logging`) and the message of ``event``."""
    kinds = (kind for kind in type(event).__mro__ if kind in PHRASES)
    level, phrase = PHRASES.get(next(kinds, Event), (INFO, event.name.replace("_", " ")))
    return level, " ".join([phrase, *(f"{key}={_quoted(value)}" for key, value in _values(event))])


def _values(event: Event) -> Iterator[tuple[str, Any]]:
    found = {each.name: getattr(event, each.name) for each in fields(event)}
    yield "career", found.pop("career")
    yield "id", found.pop("candidate")
    if "offset" in found:
        yield "record", f"{found.pop('partition')}@{found.pop('offset')}"
    for name, value in found.items():
        if isinstance(value, str | int | float | Enum | BaseException):
            yield name, _plain(value)
        if isinstance(value, Reason):
            yield "why", value.sentence


def _quoted(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if text.isprintable() and not set(text) & set(' "=') else json.dumps(text)


def _log_event(event: Event) -> None:
    level, text = message(event)
    if not log.isEnabledFor(level):
        return
    error = event.error if isinstance(event, CareerError) else None
    info = None if isinstance(error, Deposed | CommandFailed) else _from_user_code(error)
    values = {each.name: _plain(getattr(event, each.name)) for each in fields(event)}
    log.log(level, "%s", text, extra={"event": event.name} | values, exc_info=info)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseException):
        return f"{type(value).__name__}: {value}"
    return value.value if isinstance(value, Enum) else value


def _from_user_code(error: BaseException | None) -> _ExcInfo | None:
    """``error`` for a log record, without our own frames at the head of its traceback."""
    if error is None:
        return None
    first = error.__traceback__
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_OURS):
        first = first.tb_next
    return type(error), error, first or error.__traceback__
