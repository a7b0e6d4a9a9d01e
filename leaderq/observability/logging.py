"""Logs each event as one line on standard error: as text for people, or as JSON.

The message is a fixed phrase, followed by values, as in ``stage began career=c id=a term=7
stage=execution``. For other handlers, the record has attributes: ``event`` (the event's name),
``career``, ``candidate`` and the event's own fields (``term``, ``stage``, ``reason``...).
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator
from configparser import RawConfigParser
from contextlib import suppress
from dataclasses import fields
from datetime import datetime, timezone
from enum import Enum
from logging import DEBUG, ERROR, WARNING
from math import isfinite
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from leaderq.base import clock, host
from leaderq.errors import (
    CareerFailed,
    CommandFailed,
    ConfigurationError,
    Deposed,
    LeaderqError,
    Reason,
    told,
)
from leaderq.events import CareerError, Event, EventBus
from leaderq.threads.service import Service

log = logging.getLogger("leaderq.events")
MOST_LINES = 10_000  # that may wait; later ones are dropped and counted
FLUSH_S = 1.0
_FULL_S = 0.01
_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]
_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_OURS = str(Path(__file__).parents[1])


def log_events(events: EventBus) -> Callable[[], None]:
    """Log each event that is published on ``events``, once; return a function that stops this."""
    return events.subscribe(Event, _log_event)


def log_failure(error: CareerFailed) -> None:
    """Log an error that the user's code raised outside of any term, with its traceback."""
    extra = {"event": "career_failed", "career": error.career, "stage": error.stage}
    log.error("%s", error, extra=extra, exc_info=_from_user_code(error.__cause__))


def configure(form: str, level: str, config: Path | None = None) -> None:
    """Write the logs of this process, and Python's warnings, to standard error.

    ``form`` is *text* or *json*. The client libraries log less than ``level`` says. Handlers that a
    module has set on the root logger stay; ours is added, unless one of them writes to standard
    error or standard output. If there are such handlers, a level of the root logger stays, too,
    unless it is Python's default. ``config``: a file that sets up logging instead.

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
    standard = sys.stderr, sys.stdout, sys.__stderr__, sys.__stdout__
    if not any(isinstance(one, logging.StreamHandler) and one.stream in standard for one in own):
        handler = BackgroundHandler(sys.stderr)
        handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
        root.addHandler(handler)
    if not own or root.level == WARNING:
        root.setLevel(number)
    logging.getLogger("leaderq").setLevel(number)


def _configure_by(file: Path) -> None:
    """Set up logging as ``file`` says; loggers that it does not name are not disabled."""
    # here: they load parsers and a server of sockets, and most have no file
    from logging import config

    from leaderq.config.loading import parsed_toml

    try:
        text = file.read_text(encoding="utf-8")
        if file.suffix in (".json", ".toml"):
            found = json.loads(text) if file.suffix == ".json" else parsed_toml(text)
            config.dictConfig({"version": 1, "disable_existing_loggers": False, **found})
        else:
            parser = RawConfigParser()
            parser.read_string(text)
            config.fileConfig(parser, disable_existing_loggers=False)
    except Exception as exc:
        why = f"{exc} ({exc.__cause__})" if exc.__cause__ else str(exc)
        what = f"log_config: {str(file)!r} cannot be used: {type(exc).__name__}: {why}"
        raise ConfigurationError(f"{what}; see logging.config in Python's documentation") from exc
    finally:
        kazoo = logging.getLogger("kazoo")
        kazoo.setLevel(max(DEBUG, kazoo.level))


class TextFormatter(logging.Formatter):
    """``2026-11-22 12:30:01.250+0100 INFO message``; a line of another library names its logger."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  (the library's name)
        """Return one line; the library appends the traceback of an error."""
        at = time.localtime(record.created)
        moment = time.strftime("%Y-%m-%d %H:%M:%S", at)
        origin = "" if record.name.startswith("leaderq") else f"{record.name}: "
        head = f"{moment}.{int(record.msecs):03d}{time.strftime('%z', at)} {record.levelname:<7}"
        return f"{head} {origin}{record.message}"


class JsonFormatter(logging.Formatter):
    """A JSON object with ``time`` (ISO 8601, UTC), ``level``, ``message``, ``logger``, and the
    record's own attributes.
    """

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, timezone.utc)
        line = {key: value for key, value in vars(record).items() if key not in _STANDARD}
        line["time"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line["level"] = record.levelname.lower()
        line["message"] = record.getMessage()
        line["logger"] = record.name
        error = self.formatException(record.exc_info) if record.exc_info else ""
        if attached := "\n".join(filter(None, [error, record.stack_info])):
            line["traceback"] = attached
        try:
            return json.dumps(line, default=str, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError):  # NaN, a key that is no text, a ring
            line = {str(key): one if _is_plain(one) else repr(one) for key, one in line.items()}
            return json.dumps(line, ensure_ascii=False)


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | None) or (isinstance(value, float) and isfinite(value))


def message(event: Event) -> str:
    """The log line of ``event``: its phrase, followed by its values."""
    return " ".join([event.phrase, *(f"{key}={_quoted(value)}" for key, value in _values(event))])


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
    if not log.isEnabledFor(event.level):
        return
    error = event.error if isinstance(event, CareerError) else None
    info = None if isinstance(error, Deposed | CommandFailed) else _from_user_code(error)
    values = {each.name: _plain(getattr(event, each.name)) for each in fields(event)}
    log.log(event.level, "%s", message(event), extra={"event": event.name} | values, exc_info=info)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseException):
        return told(value)
    return value.value if isinstance(value, Enum) else value


def _from_user_code(error: BaseException | None) -> _ExcInfo | None:
    """The exception information of ``error`` for a log record, without our own frames at the start
    of its traceback. ``None`` if the error's message is enough: leaderq raised the error, it passed
    through no code of the user's, and the level is not DEBUG.
    """
    if error is None:
        return None
    first = error.__traceback__
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_OURS):
        first = first.tb_next
    if first is None and isinstance(error, LeaderqError) and not log.isEnabledFor(DEBUG):
        return None
    return type(error), error, first or error.__traceback__


class BackgroundHandler(logging.Handler):
    """Formats a record in the thread that logs, and writes it to ``stream`` on a thread of its own.
    If nobody reads standard error, a leader can still renew its lease.

    Guarantees: logging never blocks; lines keep their order; ``flush`` waits ``FLUSH_S`` at most.
    Not guaranteed: that the last lines before a SIGKILL are written.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._dropped = 0
        self._is_writing = False
        self._begin()

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - a wrong log call must not stop the work
            self.handleError(record)
            return
        if self._pid != host.pid():
            self._begin()  # threads do not survive a fork
        if len(self._lines) >= MOST_LINES:
            self._dropped += 1
            return
        self._lines.append(line + "\n")
        self._service.wake()

    def flush(self) -> None:
        """Wait until all lines so far are written, for ``FLUSH_S`` at most."""
        end_s = clock.now_s() + FLUSH_S
        while (
            (self._lines or self._is_writing) and self._pid == host.pid() and clock.now_s() < end_s
        ):
            clock.sleep(0.001)

    def close(self) -> None:
        self.flush()
        self._lines.clear()
        self._service.stop(timeout_s=0.0)
        super().close()

    def _begin(self) -> None:
        self._pid = host.pid()
        self._lines: deque[str] = deque()
        self._service = Service.repeating("leaderq-log", self._write)
        self._service.start()

    def _write(self) -> None:
        self._is_writing = True
        while self._lines:
            lines = [self._lines.popleft() for _ in range(min(100, len(self._lines)))]
            if self._dropped:
                lines.append(f"log lines dropped, because nobody read them: {self._dropped}\n")
                self._dropped = 0
            with suppress(OSError, ValueError):  # closed: there is nowhere left to write to
                self._write_out("".join(lines))
        self._is_writing = False

    def _write_out(self, text: str) -> None:
        try:
            number = self._stream.fileno()
        except (OSError, ValueError, AttributeError):  # not a file: a test's
            self._stream.write(text)
            self._stream.flush()
            return
        # Past the stream and its lock, which the end of the interpreter would wait for.
        rest = text.encode(errors="backslashreplace")
        while rest:
            try:
                rest = rest[os.write(number, rest) :]
            except BlockingIOError:  # another process that shares the pipe made it non-blocking
                clock.sleep(_FULL_S)
