"""Requests from the lines of a file, in the order of their times. Pure, but for the reading.

Two forms of a line: ``key``, or ``key`` TAB ``time``, which ``cut``, ``jq -r`` or ``awk`` make of
anything; and the access log of web servers. A file may hold anything: a line that cannot be used is
counted, and the first few are shown.

Logs are written when requests end, and by many threads, so times go back a little; and they are cut
to whole seconds. So requests are put in order, and equal times may be spread over the second.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timezone
from heapq import heappop, heappush
from typing import BinaryIO

from leaderq.errors import ConfigurationError

Request = tuple[str, float | None]
"""A key, and the seconds since the epoch, or ``None`` where the stream has no times."""
Arrival = tuple[float, str]
"""Seconds on any clock, and the key."""
Parse = Callable[[str], Request]

BUFFER = 10_000
LONGEST_LINE_BYTES = 1 << 20
SHOWN = 3
ACCESS_LOG_RESOLUTION_S = 1.0

_ACCESS_LOG = re.compile(
    r"(?P<client>\S+) (?P<ident>\S+) (?P<user>.+?) \[(?P<time>[^\]]+)\] "
    r'"(?P<request>(?:[^"\\]|\\.)*)" (?P<status>\d{3}) (?P<bytes>\S+)'
    r'(?: "(?P<referer>(?:[^"\\]|\\.)*)" "(?P<agent>(?:[^"\\]|\\.)*)")?.*'
)
_OF_REQUEST = ("method", "path", "protocol")
ACCESS_LOG_FIELDS = (*_ACCESS_LOG.groupindex, *_OF_REQUEST)


class BadLine(Exception):
    """A line that cannot be used; says why."""


def key_and_time(line: str) -> Request:
    """``key`` or ``key`` TAB ``time``: seconds since the epoch, or ISO 8601 (UTC without a zone).

    :raises BadLine: the time is neither.
    """
    key, tab, time = line.rpartition("\t")
    if not tab:
        return time, None
    try:
        return key, float(time)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", time.strip()))
        return key, (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        raise BadLine(f"not a time: {time[:40]!r}") from None


def access_log(field: str) -> Parse:
    """Take lines of an access log of Apache or nginx, combined or common, for ``field``.

    :raises ConfigurationError: there is no such field.
    """
    if field not in ACCESS_LOG_FIELDS:
        known = ", ".join(ACCESS_LOG_FIELDS)
        raise ConfigurationError(f"an access log has no field {field!r}; its fields are {known}")

    def parse(line: str) -> Request:
        found = _ACCESS_LOG.fullmatch(line)
        if found is None:
            raise BadLine("not a line of an access log")
        try:
            at_s = datetime.strptime(found["time"], "%d/%b/%Y:%H:%M:%S %z").timestamp()
        except ValueError:
            raise BadLine(f"not a time of an access log: {found['time'][:40]!r}") from None
        if field not in _OF_REQUEST:
            return found[field] or "-", at_s
        parts = found["request"].split(" ")
        if len(parts) < 2:
            raise BadLine(f"not an HTTP request: {found['request'][:40]!r}")
        return parts[min(_OF_REQUEST.index(field), len(parts) - 1)], at_s

    return parse


class RequestLines:
    """The requests of ``stream``, line by line.

    ``lines`` counts the lines read, but for empty ones; ``requests`` those that were requests;
    ``undecodable`` those that are not UTF-8; ``unusable`` those that ``parse`` refused, or longer
    than 1 MiB. ``complaints`` holds the first few, with their numbers.
    """

    def __init__(self, stream: BinaryIO, parse: Parse) -> None:
        self._stream = stream
        self._parse = parse
        self.lines = 0
        self.requests = 0
        self.undecodable = 0
        self.unusable = 0
        self.complaints: list[str] = []

    def __iter__(self) -> Iterator[Request]:
        number = 0
        while raw := self._stream.readline(LONGEST_LINE_BYTES):
            number += 1
            self.lines += 1
            is_whole = raw.endswith(b"\n") or len(raw) < LONGEST_LINE_BYTES
            try:
                if not is_whole:
                    self._skip_rest()
                    raise BadLine(f"longer than {LONGEST_LINE_BYTES} bytes")  # noqa: TRY301
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if not text:
                    self.lines -= 1
                    continue
                request = self._parse(text)
            except UnicodeDecodeError as exc:
                self.undecodable += 1
                self._complain(number, f"not UTF-8 at byte {exc.start + 1}")
            except BadLine as exc:
                self.unusable += 1
                self._complain(number, str(exc))
            else:
                self.requests += 1
                yield request

    def _skip_rest(self) -> None:
        while (rest := self._stream.readline(LONGEST_LINE_BYTES)) and not rest.endswith(b"\n"):
            continue

    def _complain(self, number: int, what: str) -> None:
        if len(self.complaints) < SHOWN:
            self.complaints.append(f"line {number}: {what}")


class InOrder:
    """``arrivals`` in the order of their times, as far as ``buffer`` requests can be rearranged;
    equal times keep their order.

    One that comes later still is given the time of the one before it, and counted in ``late``.
    """

    def __init__(self, arrivals: Iterable[Arrival], *, buffer: int = BUFFER) -> None:
        self._arrivals = arrivals
        self._buffer = buffer
        self._newest_s = float("-inf")
        self.late = 0

    def __iter__(self) -> Iterator[Arrival]:
        heap: list[tuple[float, int, str]] = []
        for number, (at_s, key) in enumerate(self._arrivals):
            heappush(heap, (at_s, number, key))
            if len(heap) > self._buffer:
                yield self._next(heap)
        while heap:
            yield self._next(heap)

    def _next(self, heap: list[tuple[float, int, str]]) -> Arrival:
        at_s, _, key = heappop(heap)
        self.late += at_s < self._newest_s
        self._newest_s = max(at_s, self._newest_s)
        return self._newest_s, key


def spread(
    arrivals: Iterable[Arrival], *, resolution_s: float, buffer: int = BUFFER
) -> Iterator[Arrival]:
    """Spread those with one and the same time evenly over ``resolution_s`` from it: what a clock of
    whole seconds writes down has come at any time within the second. Of more than ``buffer`` of
    them the rest comes at the end of it.
    """
    ties: list[str] = []
    at_s = 0.0
    is_full = False
    for next_s, key in arrivals:
        if next_s != at_s:
            yield from _spread(at_s, ties, resolution_s)
            at_s, ties, is_full = next_s, [], False
        elif not is_full and len(ties) >= buffer:
            yield from _spread(at_s, ties, resolution_s)
            ties, is_full = [], True
        if is_full:
            yield at_s + resolution_s, key
        else:
            ties.append(key)
    yield from _spread(at_s, ties, resolution_s)


def _spread(at_s: float, keys: list[str], resolution_s: float) -> Iterator[Arrival]:
    step_s = resolution_s / len(keys) if keys else 0.0
    for number, key in enumerate(keys):
        yield at_s + number * step_s, key
