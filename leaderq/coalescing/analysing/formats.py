"""Lines of a log as requests: the access log of web servers, JSON, and columns (pure).

Fields are named as their format names them; columns are counted from 1. A line that is not as its format says gives
:class:`BadLine`, and the next one is read: whoever reads counts them. What can be known before the lines are read (a
field that the format does not have) is a :class:`~leaderq.errors.ConfigurationError` at once.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, Protocol

from leaderq.errors import ConfigurationError

_COMBINED = re.compile(
    r'(?P<client>\S+) (?P<ident>\S+) (?P<user>.+?) \[(?P<time>[^\]]+)\] "(?P<request>(?:[^"\\]|\\.)*)" (?P<status>\d{3}) (?P<bytes>\S+)'
    r'(?: "(?P<referer>(?:[^"\\]|\\.)*)" "(?P<agent>(?:[^"\\]|\\.)*)")?.*'
)
_OF_REQUEST = ("method", "path", "protocol")
COMBINED_FIELDS = (
    "client",
    "ident",
    "user",
    "time",
    "request",
    *_OF_REQUEST,
    "status",
    "bytes",
    "referer",
    "agent",
)
_TIME = "%d/%b/%Y:%H:%M:%S %z"
_MILLISECONDS_FROM = 1e11
_DELIMITERS = ("\t", ",", ";", "|")


class BadLine(Exception):
    """A line that cannot be used; says why."""


class Format(Protocol):
    """Takes a line apart."""

    resolution_s: float
    """Of its times; 0 if they are exact."""

    def request(self, line: str) -> tuple[str, float | None] | None:
        """The key, and its time if it has one; ``None`` for a line that is no request, such as a heading.

        :raises BadLine: it is not as it should be.
        """


class Combined:
    """The access log of Apache and nginx, combined or common.

    Fields: client, ident, user, time, request, method, path, protocol, status, bytes, referer, agent.

    :raises ConfigurationError: there is no such field.
    """

    resolution_s = 1.0

    def __init__(self, key: str) -> None:
        if key not in COMBINED_FIELDS:
            raise ConfigurationError(f"an access log has no field {key!r}; its fields are {', '.join(COMBINED_FIELDS)}")
        self._key = key

    def request(self, line: str) -> tuple[str, float | None]:
        """See :class:`Format`."""
        found = _COMBINED.fullmatch(line)
        if found is None:
            raise BadLine("not a line of an access log")
        try:
            at_s = datetime.strptime(found["time"], _TIME).timestamp()
        except ValueError:
            raise BadLine(f"no time of an access log: {found['time'][:40]!r}") from None
        if self._key not in _OF_REQUEST:
            return found[self._key] or "-", at_s
        parts = found["request"].split(" ")
        if len(parts) < 2:
            raise BadLine(f"no request of HTTP: {found['request'][:40]!r}")
        return parts[min(_OF_REQUEST.index(self._key), len(parts) - 1)], at_s


class JsonLines:
    """An object a line. A field of an inner object is named with dots; one that has the dots in its own name goes first."""

    resolution_s = 0.0

    def __init__(self, key: str, time: str | None = None) -> None:
        self._key = key
        self._time = time

    def request(self, line: str) -> tuple[str, float | None]:
        """See :class:`Format`."""
        try:
            value = json.loads(line)
        except (ValueError, RecursionError) as exc:
            raise BadLine(f"not JSON: {str(exc)[:60]}") from None
        if not isinstance(value, dict):
            raise BadLine(f"not a JSON object but {type(value).__name__}")
        key = _member(value, self._key)
        text = key if isinstance(key, str) else json.dumps(key, sort_keys=True)
        return text, None if self._time is None else moment(_member(value, self._time))


class Delimited:
    """Columns between ``delimiter`` (``""``: white space), named by the first line or numbered from 1.

    With a name for ``key`` or ``time`` the first line is the heading; ``has_heading`` says so for numbers. A quoted field
    may hold the delimiter, not a line end.

    :raises ConfigurationError: (from :meth:`request`, at the first line) the heading lacks the column.
    """

    resolution_s = 0.0

    def __init__(
        self,
        key: str,
        time: str | None = None,
        *,
        delimiter: str | None = None,
        has_heading: bool = False,
    ) -> None:
        self._key, self._time = key, time
        self._delimiter = delimiter
        self._awaits_heading = has_heading or not all(one is None or one.isdecimal() for one in (key, time))
        self._columns: tuple[int, int | None] | None = None
        if not self._awaits_heading:
            self._columns = (_column(key), None if time is None else _column(time))

    def request(self, line: str) -> tuple[str, float | None] | None:
        """See :class:`Format`."""
        fields = self._fields(line)
        if self._awaits_heading:
            self._awaits_heading = False
            self._columns = (
                _named(self._key, fields),
                None if self._time is None else _named(self._time, fields),
            )
            return None
        assert self._columns is not None  # from the heading, or from the beginning
        key, time = self._columns
        if max(key, time or 0) >= len(fields):
            raise BadLine(f"{len(fields)} columns, and column {max(key, time or 0) + 1} is wanted")
        return fields[key], None if time is None else moment(fields[time])

    def _fields(self, line: str) -> list[str]:
        if self._delimiter is None:
            self._delimiter = max(_DELIMITERS, key=line.count)
            if self._delimiter not in line:
                self._delimiter = ""
        if not self._delimiter:
            return line.split()
        try:
            return next(csv.reader([line], delimiter=self._delimiter, strict=True), [])
        except csv.Error as exc:
            raise BadLine(f"columns cannot be told apart: {exc}") from None


def guessed(first_line: str) -> str:
    """``combined``, ``json`` or ``delimited``, from a line."""
    if _COMBINED.fullmatch(first_line):
        return "combined"
    return "json" if first_line.lstrip().startswith("{") else "delimited"


def moment(value: Any) -> float:
    """Seconds since the epoch: of a number (of seconds; of milliseconds if it is so large), or of a time by ISO 8601, in
    UTC if it has no zone.

    :raises BadLine: it is neither.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        raise BadLine(f"no time: {str(value)[:40]!r}")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return _calendar(str(value))
    if not abs(number) < float("inf"):
        raise BadLine(f"no time: {str(value)[:40]!r}")
    return number / 1000 if abs(number) >= _MILLISECONDS_FROM else number


def _calendar(text: str) -> float:
    try:
        found = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", text.strip()))
        return (found if found.tzinfo else found.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        raise BadLine(f"no time: {text[:40]!r}") from None


def _member(value: dict[str, Any], name: str) -> Any:
    if name in value:
        return value[name]
    found: Any = value
    for part in name.split("."):
        if not isinstance(found, dict) or part not in found:
            raise BadLine(f"no field {name!r}; there are {', '.join(sorted(value))[:80] or 'none'}")
        found = found[part]
    return found


def _column(number: str) -> int:
    if not 1 <= int(number) <= 100_000:
        raise ConfigurationError(f"column {number}: columns are counted from 1")
    return int(number) - 1


def _named(name: str, heading: Sequence[str]) -> int:
    names = [one.strip() for one in heading]
    if name in names:
        return names.index(name)
    if name.isdecimal():
        return _column(name)
    raise ConfigurationError(f"no column {name!r} in the first line, which has {', '.join(map(repr, names))[:200]}")
