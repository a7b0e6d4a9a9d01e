"""Turns values into words (pure): durations, times, and texts of others, which are made short and
harmless. Also defines the rows of tables.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from contextlib import suppress
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from typing import Any, Literal

_WIDEST = 60
Row = dict[str, Any]
"""A row of a table: each heading and its value; ``None`` shows nothing."""
Tone = Literal["good", "warn", "bad", "faint", ""]


class Toned(str):
    """A text, and its tone for displays with colours: how good or bad the text is."""

    __slots__ = ("tone",)
    tone: Tone

    def __new__(cls, text: object, tone: Tone) -> Toned:
        made = super().__new__(cls, text)
        made.tone = tone
        return made


def is_like(wanted: str, *texts: str) -> bool:
    """Whether ``wanted`` is a part of one of these texts, or a pattern (``team-*``) that one
    matches. Case does not matter.
    """
    wanted, found = wanted.strip().lower(), [one.lower() for one in texts]
    return any(wanted in one or fnmatchcase(one, wanted) for one in found)


def duration(seconds: float) -> str:
    """``seconds`` in their two largest units: ``4 s``, ``3 m 20 s``, ``2 h 5 m``, ``6 d 1 h``;
    never negative.
    """
    whole = max(0, int(seconds))
    units = [
        (whole // 86400, "d"),
        (whole // 3600 % 24, "h"),
        (whole // 60 % 60, "m"),
        (whole % 60, "s"),
    ]
    first = next((at for at, (amount, _) in enumerate(units) if amount), len(units) - 1)
    return " ".join(f"{amount} {unit}" for amount, unit in units[first : first + 2])


def briefly(seconds: float) -> str:
    """``seconds`` as a duration; less than a second is told in milliseconds."""
    return duration(seconds) if seconds >= 1 else f"{seconds * 1000:.0f} ms"


def iso(at_ms: int | None) -> str | None:
    """``at_ms`` as ISO 8601 in UTC; ``None`` if it is unknown, or beyond the calendar."""
    moment = _moment(at_ms)
    return moment.isoformat(timespec="milliseconds") if moment else None


def local(at_ms: int | None) -> str | None:
    """``at_ms`` as local date and time; beyond the calendar, as milliseconds since the epoch."""
    with suppress(OverflowError, ValueError, OSError):  # no such local time, a day more or less
        if moment := _moment(at_ms):
            return f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"
    return None if at_ms is None else f"{at_ms} ms"


def _moment(at_ms: int | None) -> datetime | None:
    if at_ms is None or at_ms < 0:
        return None
    try:
        return datetime.fromtimestamp(at_ms / 1000, timezone.utc)
    except (OverflowError, ValueError, OSError):
        return None


def harmless(text: str) -> str:
    """``text`` with its unprintable characters escaped, so that it cannot control a terminal."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def harmless_lines(text: str) -> str:
    """``text`` as :func:`harmless` makes it, but still in its lines."""
    return "\n".join(map(harmless, text.split("\n")))


def cut(text: str, width: int, *, is_longer: bool = False) -> str:
    """``text``, cut to ``width`` characters. It ends in an ellipsis if it was cut or
    ``is_longer``.
    """
    return text if len(text) <= width and not is_longer else text[: width - 1] + "…"


def brief(data: bytes) -> str:
    """``data`` as one line of at most some sixty characters that are safe for a terminal; in
    hexadecimal if it is not text.
    """
    is_long = len(data) > 4 * _WIDEST
    try:  # the last letter may be cut
        text = getincrementaldecoder("utf-8")().decode(data[: 4 * _WIDEST], final=not is_long)
    except UnicodeDecodeError:
        return cut(f"(hexadecimal) {data[:_WIDEST].hex(' ')}", _WIDEST)
    return cut(harmless(text), _WIDEST, is_longer=is_long)
